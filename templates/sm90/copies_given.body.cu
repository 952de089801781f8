//$ -- SPDX-License-Identifier: Apache-2.0
follow.copies.row_sf = (float *)row_sf;
//$ local pad = a.scale.pad_rows
follow.copies.row_stride = (m + $(pad - 1)) / $(pad) * $(pad);
follow.copies.column = column;
follow.copies.column_stride = column_stride;
follow.copies.column_sf = (float *)column_sf;
//$ local two = operands ~= "one"
follow.copies.results = n$(not two and "" or epilogue == "copies" and " / 2" or " * 2");
follow.copies.memory = &s;
