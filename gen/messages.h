/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h: every error that a spec, a template or a call of the generator
   can meet: X(name, format). Each names the error and the remedy. */
#pragma once

#define QG_MESSAGES(X)                                                         \
    /* Lua's own words, or a spec's call of error() */                         \
    X(LUA, "%s")                                                               \
    X(NOT_TEXT, "error was called with %s; give it a text")                    \
    /* the sandbox */                                                          \
    X(UNDEFINED, "'%s' is not defined here; %s")                               \
    X(NOT_VALUES, "%s; it does not take values of a rule, which has: %s")      \
    X(TOO_DEEP,                                                                \
      "brackets, blocks or .. are nested too deeply in each other; use "       \
      "locals for the parts")                                                  \
    X(NOT_OFFERED, "'%s' of Lua is not for specs: they must come to an end, "  \
                   "reach nothing outside, and say the same on any machine")   \
    X(ASSIGNED, "'%s' is not local; write: local %s = ...")                    \
    X(BINARY, "compiled Lua is not accepted; give the text")                   \
    X(STEPS, "more than %lld steps of Lua; is there an endless loop?")         \
    X(ALL_STEPS, "all files and functions take more than %lld steps of Lua")   \
    X(SECONDS, "more than %d seconds of processor time are needed")            \
    X(MEMORY, "more than %zu bytes of memory are needed; make fewer values")   \
    X(STRING, "a text has more than %d bytes; keep it shorter")                \
    X(NO_FIELD, "there is no '%s' here; %s")                                   \
    X(FROZEN, "this table cannot be changed; copy its values into your own")   \
    X(TYPE_CALL, "%s is a type and cannot be called; rules round with "        \
                 "to_e4m3, to_bf16, to_f16, e8m0_up and e8m0_down")            \
    X(KEY_KIND, "pairs takes tables with integers and strings as keys, "       \
                "this one has %s")                                             \
    X(NO_TEXT, "%s has no text; take a field or an element of it")             \
    X(FORMAT_KIND, "'%%%c' is not a conversion of format here; it takes "      \
                   "%%d %%i %%s %%x %%X %%c and %%%%; floats: hex(x)")         \
    /* files */                                                                \
    X(OPEN, "cannot read it: %s")                                              \
    X(FILE_NAME, "a spec's file name is letters, digits, _ and -, then .lua")  \
    X(FILE_EMPTY, "it declares nothing; write a statement, such as recipe "    \
                  "\"name\" { ... }, or remove the file")                      \
    X(FILE_LOOSE,                                                              \
      "a spec belongs in recipes/, layouts/, ragged/ or kernels/ of "          \
      "the folder that is named; move it there, or name the "                  \
      "folder above")                                                          \
    X(FILE_SIZE, "a spec has at most %d bytes, this one has %zu")              \
    X(NO_SPECS, "there are no specs below it; *.lua files belong into "        \
                "recipes/, layouts/, ragged/ or kernels/")                     \
    /* words */                                                                \
    X(NAME_KIND, "%s takes a name as text; write: %s")                         \
    X(NAME_FORM, "'%s' is no name for a %s; letters a-z, digits and _, a "     \
                 "letter first, at most %d")                                   \
    X(SENTENCE, "%s takes a text of one line, at most 200 characters; "        \
                "write: %s")                                                   \
    X(UNFINISHED, "%s lacks its second part; write: %s")                       \
    X(UNUSED, "%s stands outside a statement that takes it; write: %s")        \
    X(LATE, "%s is a statement; it cannot stand in a function that is called " \
            "later")                                                           \
    X(MANY, "specs have at most %d %s, those of quern included; declare "      \
            "the ones that you need")                                          \
    X(TWICE, "%s '%s' is already declared at %s; choose another name")         \
    /* fields */                                                               \
    X(TABLE_KIND, "%s takes a table of fields, not %s")                        \
    X(FIELD_UNKNOWN, "%s has no field '%s'; %s")                               \
    X(FIELD_MISSING, "%s lacks the field '%s': %s")                            \
    X(FIELD_KIND, "field '%s' takes %s, not %s%s%s")                           \
    X(FIELD_VALUE, "field '%s' cannot be '%s'; %s")                            \
    X(FIELD_KEY, "%s has a key that is %s; fields have names")                 \
    X(FIELD_ITEM, "%s takes fields with names; entry %lld is %s; it has: %s")  \
    X(FIELD_TWICE, "'%s' is given twice in this table, first in line %d, and " \
                   "Lua would take the last; keep one")                        \
    X(FIELD_LIST, "%s takes only a list of values; it also has the key '%s'")  \
    X(FIELD_EMPTY, "field '%s' is an empty list; give at least one value")     \
    X(FIELD_LONG, "field '%s' has %lld values; at most %d are allowed")        \
    X(FIELD_AGAIN, "field '%s' lists '%s' twice")                              \
    X(FIELD_RANGE, "field '%s' is a whole number from 1 to %d, not %s")        \
    X(FIELD_PATH, "field '%s' is a path below templates/ such as "             \
                  "\"sm90/gemm.cu\", not '%s'")                                \
    /* statements */                                                           \
    X(RECIPE_DY, "recipe '%s' scales dy and has no type for it; write: "       \
                 "element = { x = ..., w = ..., dy = ... }, or leave "         \
                 "scale.dy out: the recipe then serves fprop only")            \
    X(TILES, "tiles are padded to 128 rows and 4 columns, each group by "      \
             "itself; leave '%s' out")                                         \
    X(RAGGED_NAME, "ragged axis '%s' is none of m, n, k and none")             \
    X(KERNELS_NEEDS, "kernels '%s' of op '%s' lacks the field '%s': %s")       \
    X(KERNELS_OTHER, "kernels '%s' of op '%s' cannot have the field '%s', "    \
                     "which belongs to %s")                                    \
    X(KERNELS_MIXED, "kernels '%s' lists op '%s' next to '%s'; products and "  \
                     "casts are made by different templates")                  \
    X(ITEM_KIND, "entry %lld of kernels '%s' is %s; it takes axis, derive, "   \
                 "requires, reject and without")                               \
    X(ITEM_COUNT, "kernels '%s' has more than %d entries")                     \
    X(ITEM_FUNCTION, "%s takes a function of v, not %s; write: %s")            \
    X(ITEM_NAME, "'%s' is already taken at %s; choose another name")           \
    X(ITEM_RESERVED, "'%s' is a word of the language; choose another name")    \
    X(AXIS_VALUE, "value %d of axis '%s' is %s; a value is a name, a whole "   \
                  "number from 0 to 16777216, or a list of 1 to 4 of them")    \
    X(AXIS_LIST, "axis '%s' takes a list of 1 to %d values")                   \
    X(AXIS_AGAIN, "axis '%s' has the value '%s' twice")                        \
    X(AXIS_COUNT, "kernels '%s' has more than %d axes")                        \
    X(EXTEND_UNKNOWN, "no kernels statement is called '%s'; %s")               \
    X(EXTEND_ITEM, "kernels '%s' has no axis and no derive '%s'; %s")          \
    X(EXTEND_FIELD, "field '%s' keeps some values of kernels '%s', which has " \
                    "no '%s'; %s")                                             \
    X(EXTEND_NONE, "extend '%s' makes no kernel: no recipe has elements, "     \
                   "scales and output types that its fields keep")             \
    X(EXTEND_TWICE, "kernel %s is also made by %s; give an axis of the "       \
                    "extension a value that is made nowhere else")             \
    X(SHIPPED_KIND, "shipped takes a list of kernels' names, not %s")          \
    X(SHIPPED_LIST, "shipped takes a list of kernels' names; entry %d is %s")  \
    X(SHIPPED_COUNT, "more than %d kernels are shipped; compile the rest on "  \
                     "first use")                                              \
    X(SHIPPED_UNKNOWN, "no kernel is called '%s'; %s")                         \
    X(SHIPPED_REJECTED, "kernel '%s' is rejected: %s")                         \
    X(SHIPPED_TWICE, "kernel '%s' is already shipped at %s")                   \
    X(EVIDENCE_NAME, "evidence '%s' is neither a GPU nor interpreted; %s")     \
    X(EVIDENCE_KIND, "evidence takes a list of kernels' names, not %s")        \
    X(EVIDENCE_ENTRY,                                                          \
      "evidence takes a list of kernels' names; entry %d is %s")               \
    X(REQUIRES_TEXT, "'%s' is no rule on a problem: %s")                       \
    /* rules of scales */                                                      \
    X(SCALE_TYPE, "a rule for %s scales must return %s, this one returned "    \
                  "%s; write: return %s")                                      \
    X(RULE_THIRD,                                                              \
      "a rule returns the stored scale and the values' factor; this one "      \
      "also returned %s")                                                      \
    X(RULE_FINITE, "for amax = %g the rule %s %g, and 0 * inf is NaN; write: " \
                   "s = select(eq(amax, 0), 1, min(s, f32.max))")              \
    X(RULE_RANGE, "for amax = %g the largest value of a block becomes %g, "    \
                  "while %s reaches from %g to %g; does it return the stored " \
                  "scale first and "                                           \
                  "then the values' factor?")                                  \
    X(RULE_INVERSE, "for amax = %g the rule stores %g and multiplies by %g, "  \
                    "whose product%s is %g: values would not come back; "      \
                    "write: return %s")                                        \
    X(RULE_NUMBER, "the rule returned %s without using its argument; it must " \
                   "be an expression of it")                                   \
    X(RULE_FACTOR, "after the stored scale, the rule must return the values' " \
                   "factor, a float, not %s; write: return %s")                \
    X(RULE_UNUSED, "the rule does not use %s; it must be an expression of it") \
    X(RULE_WHICH, "there is no rule '%s' here; templates of casts have rule "  \
                  "\"scale\", and rule \"global\" if the recipe has one")      \
    X(BLOCK_SHAPE, "a block of %d x %d values is not possible: k is 16, 32, "  \
                   "64 or 128, and m or n is 1 or as large; or write: per = "  \
                   "\"row\", \"group\" or \"tensor\"")                         \
    X(BLOCK_ROWS, "rows of %s are counted by per.%s, not per.%s")              \
    X(SCALE_PARTS, "%s: %s")                                                   \
    X(SIGNS, "field '%s' takes 16 signs such as \"+++-+------+-+--\", not "    \
             "'%s'")                                                           \
    X(RULE_STEADY, "the rule gave another expression when it was called "      \
                   "again; use nothing that changes between calls")            \
    X(RULE_OLD, "a value of one call of a rule was used in another")           \
    X(RULE_WORD, "%sa rule cannot use '%s', which does not see values that "   \
                 "are known only on the device; write: %s")                    \
    X(RULE_TAKES, "a rule is called with amax and of, this one takes %d "      \
                  "values; of has the fields element, input, global and "      \
                  "previous")                                                  \
    X(RULE_PLAIN, "%s does not work in a rule; write: %s")                     \
    X(RULE_KIND, "%s takes %s here, not %s%s")                                 \
    X(RULE_COUNT, "%s takes %d value%s, here it got %d")                       \
    X(RULE_LONG, "the rule's expression has more than %d terms")               \
    /* expansion */                                                            \
    X(UNKNOWN_NAME, "there is no %s '%s'; %s")                                 \
    X(UNKNOWN_TEMPLATE, "there is no template '%s'; %s")                       \
    X(NO_POINTS, "kernels '%s' makes none for recipe '%s', whose elements, "   \
                 "scales or output types are others; name another, or those "  \
                 "of that recipe")                                             \
    X(POINTS,                                                                  \
      "with kernels '%s' the grids have more than %d points, %d of them for "  \
      "each recipe; take values from axes of your own kernels, or name the "   \
      "recipe that they are for")                                              \
    X(DERIVED_KIND, "derive '%s' gave %s; it must give a whole number, a "     \
                    "boolean, a name, or a list of whole numbers")             \
    X(DERIVED_FLOAT, "derive '%s' gave %s; use // for whole numbers")          \
    X(DERIVED_NAME, "derive '%s' gave '%s'; a text must be a name: letters, "  \
                    "digits and _")                                            \
    X(REJECT_KIND, "the function of a %s gave %s; it must give true or false") \
    X(WITHOUT_NAME, "'%s' is not one of the params of kernels '%s'; %s")       \
    X(KERNEL_FIELD, "'%s' of kernel %s must be %s")                            \
    X(KERNEL_TWICE, "kernel %s is also made by %s; narrow one of them")        \
    X(KERNEL_NAME, "a kernel's name would have more than %d characters: %s")   \
    /* templates */                                                            \
    X(DOLLAR, "'$(' without its ')' on the same line")                         \
    X(VALUE_KIND, "$(%s) is %s; it must be a whole number or a text%s")        \
    X(INCLUDE_UNKNOWN, "there is no template '%s' to include; %s")             \
    X(INCLUDE_DEPTH, "templates include each other more than %d deep")         \
    X(OUTPUT_SIZE, "the generated file has more than %d bytes")                \
    X(TEXT_UNBALANCED,                                                         \
      "line %d of the text does not fit together, from here on: %.*s")         \
    /* calls */                                                                \
    X(KERNEL_UNKNOWN, "no kernel is called '%s'; %s")                          \
    X(NOTHING_SELECTED, "no %skernel%s%s %s%s%s")                              \
    X(RULE_UNKNOWN, "recipe '%s' %s")                                          \
    X(WRITE, "cannot write %s: %s")
