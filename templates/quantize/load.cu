//$ -- SPDX-License-Identifier: Apache-2.0
//$ local plain = form == "plain" and input.type ~= "copy"
//$ include "quantize/given.cu"

//$ local how = plain and "fetch" or input.type == "copy" and "recall" or "activate"
//$ include("quantize/" .. how .. ".cu")
