//$ -- SPDX-License-Identifier: Apache-2.0
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
//$ local finishes = epilogue == "activate" or epilogue == "copies" or epilogue == "gradient" or
//$                  epilogue == "gradient_copies"
//$ if addend == "read" then
const struct scale scale = scale_of(&addend, &t);
read_ahead(added, &scale, &t, $(row), $(d_rows), lane);
//$ elseif addend == "fetch" then
fetch_ahead(&slabs, &maps, &t,$(finishes and " n," or "") $(row), $(d_rows), lane);
//$ end
//$ if finishes then
const struct finish finish =
    finish_of(&follow, &t, $(row), $(d_rows), lane);
//$ end
