//$ -- SPDX-License-Identifier: Apache-2.0
//$ local two = operands ~= "one"
//$ local results = "n" .. (not two and "" or epilogue == "copies" and " / 2" or " * 2")
//$ local small = a.scale.k == 32
//$ if small then
follow.copies.row_sf = (sf_element *)row_sf;
//$ else
follow.copies.row_sf = (float *)row_sf;
//$ local pad = a.scale.pad_rows
follow.copies.row_stride = (m + $(pad - 1)) / $(pad) * $(pad);
//$ end
follow.copies.column = column;
follow.copies.column_stride = column_stride;
//$ if small then
follow.copies.column_sf = (sf_element *)column_sf;
follow.copies.all.m = m;
follow.copies.all.k = $(results);
follow.copies.all.groups = groups;
//$ else
follow.copies.column_sf = (float *)column_sf;
follow.copies.results = $(results);
//$ end
follow.copies.memory = &s;
