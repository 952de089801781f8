# SPDX-License-Identifier: Apache-2.0
# Completion for a shell, from the program's own help:
#     { quern --help; for each COMMAND: echo "=== COMMAND"; quern COMMAND --help; } |
#         awk -v shell=bash|zsh|fish -v recipes="bf16 ..." -f .ci/completion.awk

function quoted(text) { # between single quotes
    gsub(/'/, "'\\''", text)
    return text
}

# "auto, host, jit, aot or cublaslt" in a text, as words; "" if there is no such list.
function listed(text) {
    if (!match(text, /[a-z0-9][a-z0-9-]*(, [a-z0-9-]+)* or [a-z0-9-]+/))
        return ""
    text = substr(text, RSTART, RLENGTH)
    gsub(/,| or/, "", text)
    return text
}

# The list of commands.
!command && /^  [a-z]+ +[A-Z]/ && !works {
    names[++count] = $1
    text = $0
    sub(/^ +[a-z]+ +/, "", text)
    summary[$1] = text
}

# "fprop|dgrad|wgrad RECIPE g=G .. [beta=0|1|any]"
!command && /^    [a-z|]+ RECIPE/ { works = works (works ? "|" : "") $1 }
!command && works && /^    / {
    for (i = 1; i <= NF; i++) {
        word = $i
        gsub(/[][]/, "", word)
        if (split(word, pair, "=") == 2 && !(pair[1] in known)) {
            known[pair[1]] = 1
            keys = keys " " pair[1] "="
            gsub(/\|?[A-Z@]+|1\.\.8/, "", pair[2])
            if (pair[2] != "") {
                gsub(/\|/, " ", pair[2])
                values[pair[1]] = pair[2]
            }
        }
    }
}

/^=== / {
    command = $2
    option = ""
    next
}

# "Usage: quern COMMAND [OPTION...] FILE..."
command && /^Usage: .*FILE/ { files[command] = 1 }

command && /^ +--?[a-zA-Z?].*  / || command && /^ +--[a-z0-9]+$/ {
    head = $0
    sub(/^ +/, "", head)
    text = head
    sub(/  +.*$/, "", head)
    sub(/^[^ ]+( --[^ ]+)? */, "", text)
    short = head ~ /^-[a-zA-Z?],/ ? substr(head, 2, 1) : ""
    sub(/^.*--/, "", head)
    argument = head ~ /=/ ? substr(head, index(head, "=") + 1) : ""
    sub(/=.*/, "", head)
    option = command SUBSEP (++options[command])
    long[option] = head
    letter[option] = short == "?" ? "" : short
    takes[option] = argument
    about[option] = text
    next
}
option && match($0, /^ +/) && RLENGTH > 20 {
    text = $0
    sub(/^ +/, "", text)
    about[option] = about[option] (about[option] ? " " : "") text
    next
}
command { option = "" }

# ---------------------------------------------------------------------- output

# Words after an option: a list, or files.
function choices(o) {
    return takes[o] == "NAME" ? listed(about[o]) : ""
}

function bash(    i, j, o, words, key) {
    gsub(/\|/, " ", works)
    print "# bash completion of quern, made from its help\n_quern() {"
    print "    local word=${COMP_WORDS[COMP_CWORD]} key= words="
    print "    if [ \"$word\" = = ]; then"
    print "        key=${COMP_WORDS[COMP_CWORD-1]} word="
    print "    elif [ \"$COMP_CWORD\" -gt 1 ] && [ \"${COMP_WORDS[COMP_CWORD-1]}\" = = ]; then"
    print "        key=${COMP_WORDS[COMP_CWORD-2]}\n    fi"
    print "    if [ \"$COMP_CWORD\" = 1 ]; then"
    for (i = 1; i <= count; i++)
        words = words " " names[i]
    print "        words='" substr(words, 2) " help'"
    print "    elif [ -n \"$key\" ]; then\n        case $key in"
    for (i = 1; i <= count; i++)
        for (j = 1; j <= options[names[i]]; j++) {
            o = names[i] SUBSEP j
            if (choices(o) != "" && !(long[o] in seen)) {
                seen[long[o]] = 1
                print "        --" long[o] ") words='" choices(o) "' ;;"
            }
        }
    for (key in values)
        sorted[++n] = key
    sort(sorted, n)
    for (i = 1; i <= n; i++)
        print "        " sorted[i] ") words='" values[sorted[i]] "' ;;"
    print "        --*) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return ;;"
    print "        esac\n    elif [ \"${word#-}\" != \"$word\" ]; then\n        case ${COMP_WORDS[1]} in"
    for (i = 1; i <= count; i++) {
        words = ""
        for (j = 1; j <= options[names[i]]; j++) {
            o = names[i] SUBSEP j
            words = words " --" long[o] (takes[o] ? "=" : "")
        }
        print "        " names[i] ") words='" substr(words, 2) "' ;;"
    }
    print "        esac"
    for (i = 1; i <= count; i++)
        if (files[names[i]])
            print "    elif [ \"${COMP_WORDS[1]}\" = " names[i] " ]; then\n        compopt -o filenames" \
                "\n        COMPREPLY=($(compgen -f -- \"$word\"))\n        return"
    print "    else"
    print "        words='" works " " recipes keys "'\n    fi"
    print "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))"
    print "    case ${COMPREPLY[0]-} in *=) compopt -o nospace ;; esac"
    print "}\ncomplete -F _quern quern"
}

function sort(list, n,    i, j, kept) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
            kept = list[j]
            list[j] = list[j - 1]
            list[j - 1] = kept
        }
}

function bracketed(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/\[/, "\\[", text)
    gsub(/\]/, "\\]", text)
    gsub(/:/, "\\:", text)
    return quoted(text)
}

function zsh(    i, j, o, what) {
    gsub(/\|/, " ", works)
    print "#compdef quern\n# zsh completion of quern, made from its help\n_quern() {"
    print "    local -a commands=("
    for (i = 1; i <= count; i++)
        print "        '" names[i] ":" bracketed(summary[names[i]]) "'"
    print "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi"
    print "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in"
    for (i = 1; i <= count; i++) {
        print "    " names[i] ")\n        _arguments \\"
        for (j = 1; j <= options[names[i]]; j++) {
            o = names[i] SUBSEP j
            what = takes[o] == "" ? "" : ":" takes[o] ":" (choices(o) != "" ? "(" choices(o) ")" \
                : takes[o] ~ /DIR|FILE|PATH/ ? "_files" : " ")
            print "            '*--" long[o] (takes[o] ? "=" : "") "[" bracketed(about[o]) "]" what "' \\"
        }
        print "            '*:word:" (files[names[i]] ? "_files" : "_quern_words") "' ;;"
    }
    print "    esac\n}\n_quern_words() {"
    print "    compadd -- " works " " recipes
    print "    compadd -S '' --" keys "\n}\n_quern \"$@\""
}

function fish(    i, j, o) {
    gsub(/\|/, " ", works)
    print "# fish completion of quern, made from its help"
    print "complete -c quern -f"
    for (i = 1; i <= count; i++) {
        print "complete -c quern -n __fish_use_subcommand -a " names[i] " -d '" quoted(summary[names[i]]) "'"
        for (j = 1; j <= options[names[i]]; j++) {
            o = names[i] SUBSEP j
            print "complete -c quern -n '__fish_seen_subcommand_from " names[i] "'" \
                (letter[o] ? " -s " letter[o] : "") " -l " long[o] \
                (takes[o] == "" ? "" : takes[o] ~ /DIR|FILE|PATH/ ? " -r -F" \
                : " -x" (choices(o) != "" ? " -a '" choices(o) "'" : "")) \
                " -d '" quoted(about[o]) "'"
        }
    }
    for (i = 1; i <= count; i++)
        if (files[names[i]])
            print "complete -c quern -n '__fish_seen_subcommand_from " names[i] "' -F"
    print "complete -c quern -n 'not __fish_use_subcommand' -a '" works " " recipes keys "'"
}

END {
    if (shell == "bash")
        bash()
    else if (shell == "zsh")
        zsh()
    else
        fish()
}
