#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run every test program of both configurations, as many at once as there are
# cores, and add up what they counted.
# Skips are listed with their reasons, which the tests print as "skip: ...".
# The last line is the count; the status is 1 if anything failed.
set -u
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0

# Print a program's failures and skips; leave "passed failed skipped" in $counts.
digest() { # log, exit status
    awk -v status="$2" '
        function show(line) { print "    " line > "/dev/stderr" }
        /^1\.\.[0-9]+/    { planned += substr($1, 4) }
        /^skip: /         { reason = substr($0, 7); next }
        /^(not )?ok .*# *SKIP/  { skip++; show("skipped: " reason " " $0); next }
        /^ok /            { pass++; next }
        /not ok [0-9]/    { fail++; sub(/.*not ok/, "not ok"); show($0); next }
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
            pass += $1; fail += $3; skip += $5
        }
        END {
            lost = planned - pass - fail - skip
            if (lost > 0)
                show("ended early: " lost " tests did not run")
            if (lost > 0)
                fail += lost
            else if (status != 0 && fail == 0) {
                show("ended with status " status)
                fail++
            }
            printf "%d %d %d\n", pass, fail, skip
        }' "$1"
}

# Run a program; its name and what went wrong go into LOG.shown, then what it
# counted into LOG.counts.
run() { # log, command
    local log=$1 status=0 counts bad
    shift
    rm -f "$log.shown" "$log.counts"
    CMOCKA_MESSAGE_OUTPUT=TAP "$@" >"$log" 2>&1 || status=$?
    {
        printf '%s\n' "${!#}"
        counts=$(digest "$log" "$status")
        read -r _ bad _ <<<"$counts"
        [ "$bad" = 0 ] || sed 's/^/    | /' "$log" | tail -n 60
    } >"$log.shown" 2>&1
    echo "$counts" >"$log.part"
    mv "$log.part" "$log.counts"
}

# Print what `run` left, and add up what was counted.
show() { # log
    local p=0 f=1 s=0
    cat "$1.shown"
    read -r p f s <"$1.counts" || echo "    $1: ended early"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

have_gpu() {
    [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]
}

# The generator's Lua and the tests of failing allocations keep what a crash
# test kills; everything else must free what it took.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

python=build/python/bin/python
[ -x "$python" ] || python=python3

# A kernel compiles alike in both configurations: each has half of them, and
# half of the time.
start() { # log, program
    case $2 in
    *.py) run "$1" "$python" -B "$2" ;;
    build/bin/test_compile) QUERN_COMPILE_SHARE=0/2 run "$1" "$2" ;;
    build/asan/bin/test_compile) QUERN_COMPILE_SHARE=1/2 run "$1" "$2" ;;
    *) run "$1" "$2" ;;
    esac
}
export QUERN_COMPILE_SECONDS=${QUERN_COMPILE_SECONDS:-30}

# What takes longest first, so that no core is idle in the end.
programs=()
for name in protocol host cli compile numbers '*'; do
    for program in build/bin/test_$name build/asan/bin/test_$name; do
        [[ " ${programs[*]} " == *" $program "* ]] || programs+=("$program")
    done
done
programs+=(tests/numbers/check.py tests/report/check.py)

log_of() { # program
    local name
    case $1 in
    *.py) name=${1%/*}; echo "build/log/${name##*/}.txt" ;;
    *) echo "${1%/bin/*}/log/${1##*/}.txt" ;;
    esac
}

# Show what has ended since.
declare -A unseen
show_ended() {
    local log
    for log in "${!unseen[@]}"; do
        [ -e "$log.counts" ] || continue
        show "$log"
        unset "unseen[$log]"
    done
}

# As many at once as there are cores, of both configurations.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
mkdir -p build/log build/asan/log
rm -f build/log/*.counts build/asan/log/*.counts
for program in "${programs[@]}"; do
    while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do
        wait -n
        show_ended
    done
    log=$(log_of "$program")
    unseen[$log]=1
    start "$log" "$program" &
done
wait
show_ended
for log in "${!unseen[@]}"; do
    show "$log"
done
if [ ! -x build/bin/gpu_suite ]; then
    :
elif have_gpu; then
    run build/log/gpu_suite.txt build/bin/gpu_suite
    show build/log/gpu_suite.txt
else
    echo "build/bin/gpu_suite"
    echo "    skipped: needs an NVIDIA GPU of compute capability 9.0"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
