//$ -- SPDX-License-Identifier: Apache-2.0
//$ local w = b.major == "k" and "[groups, n, k]" or "[groups, k, n]"
//$ local shapes = {
//$   m = { "[m, k]", w, "[m, n]" },
//$   k = a.major == "k" and { "[m, k], groups from multiples of 128", "[n, k], likewise",
//$                            "[groups, m, n]" }
//$                      or { "[k, m]", "[k, n]", "[groups, m, n]" },
//$   none = { a.major == "k" and "[groups, m, k]" or "[groups, k, m]", w, "[groups, m, n]" },
//$ }
//$ local activate = "activation(alpha * a * b + bias) * probability"
//$ local gradient = "alpha * a * b * probability * activation'(p)"
//$ local formulas = { store = "a * b", add = "d + a * b", alpha = "alpha * a * b",
//$                    scale = "alpha * a * b + beta * c", activate = activate, copies = activate,
//$                    gradient = gradient, gradient_copies = gradient }
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local shape = shapes[ragged]
//$ if (epilogue == "activate" or epilogue == "copies") and operands ~= "one" then
//$   shape[3] = "[m, n / 2]"
//$ elseif back and operands ~= "one" then
//$   shape[3] = "[m, 2 n]"
//$ end
** d = $(formulas[epilogue]) for each group, summed over k.
//$ if ragged ~= "none" then
** The groups' lengths along $(ragged) are read on the device.
//$ end
//$ if microbatches > 1 then
** Up to MICROBATCHES products are one: each group's sum goes over its tokens in the first one, then
** over those in the second, and so on, and d is touched once.
//$ end
**
**   a  $(shape[1])   $(a.type)
**   b  $(shape[2])   $(b.type)
//$ local made = copies and ", of which copies are made at once: see sm90/copies.cu" or ""
**   d  $(shape[3])   $(d.type)$(made)
//$ if back then
**   p  $(shape[3])   $(d.type), the pre-activation
//$ end
