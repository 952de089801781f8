#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run test programs, as many at once as there are cores, and add up what they
# counted:
#     tests/run.sh        `make test`: each program, plainly; where cases take
#                         minutes, a share of them (tests/share.h)
#     tests/run.sh rest   `make test-all`: the other shares, and each program
#                         under ASan and UBSan
# With QUERN_TESTS_END, seconds since 1970, shares that have not begun by then are
# left out and count as skipped; the next commit begins with another share.
# Skips are listed with their reasons, which the tests print as "skip: ...", and
# cases that are left out are counted. At the end there is a table of the time
# of each part; the status is 1 if anything failed.
set -u
cd "$(dirname "$0")/.." || exit

part=${1:-test}
case $part in
test | rest) ;;
*) echo "usage: tests/run.sh [rest]" >&2; exit 2 ;;
esac

passed=0
failed=0
skipped=0
broken=() # what was shown of the jobs with failures

# Print a program's failures and skips; leave "passed failed skipped" in $counts.
digest() { # log, exit status
    awk -v status="$2" -v part="$part" '
        function show(line) { print "    " line > "/dev/stderr" }
        /^1\.\.[0-9]+/    { planned += substr($1, 4) }
        /^skip: /         { reason = substr($0, 7); next }
        /^left out: /     { show($0); next }
        /^cases: / && $2 < $4 {
            show($2 " of " $4 " cases" \
                (part == "test" ? "; make test-all runs others" : ""))
            next
        }
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

# Each test that failed, with what it printed before and after its line, and the
# end of the log: a program that died says there why.
failures() { # log
    awk '/^ok |^not ok |^1\.\./ {
             if (failed)
                 printf "%s", lines
             failed = /^not ok / && !/# *SKIP/
             lines = failed ? lines : ""
             if (!failed)
                 next
         }
         { lines = lines $0 "\n" }' "$1" | head -n 200
    tail -n 20 "$1"
}

# Run a job; its name and what went wrong go into LOG.shown, then what it
# counted and the seconds that it took into LOG.counts.
run() { # log, job, command
    local log=$1 job=$2 status=0 counts bad TIMEFORMAT='%R %U %S'
    shift 2
    { time CMOCKA_MESSAGE_OUTPUT=TAP "$@" >"$log" 2>&1; } 2>"$log.time" || status=$?
    {
        printf '%s\n' "$job"
        counts=$(digest "$log" "$status")
        read -r _ bad _ <<<"$counts"
        [ "$bad" = 0 ] || failures "$log" | sed 's/^/    | /'
    } >"$log.shown" 2>&1
    echo "$counts $(tail -n 1 "$log.time")" >"$log.part"
    mv "$log.part" "$log.counts"
}

# Print what `run` left, and add up what was counted.
show() { # log
    local p=0 f=1 s=0 seconds
    cat "$1.shown"
    read -r p f s seconds <"$1.counts" || echo "    $1: ended early"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] || broken+=("$1.shown")
    rows+=("$seconds $p $f $s $(head -n 1 "$1.shown")")
}

have_gpu() {
    [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]
}

# The generator's Lua and the tests of failing allocations keep what a crash
# test kills; everything else must free what it took.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
# Memory that was never written holds this byte, not the zeros of a fresh page.
export MALLOC_PERTURB_=165
# With 32 random bits of addresses (vm.mmap_rnd_bits) GCC 12's AddressSanitizer finds its shadow taken
# now and then, and a program dies as it starts. It runs at fixed addresses, where that is allowed.
fixed=(setarch -R)
"${fixed[@]}" true 2>/dev/null || fixed=()

python=build/python/bin/python
[ -x "$python" ] || python=python3

# A job is a program and the share of its cases, "" for all of them.
start() { # log, program, share
    local command=("$2")
    [[ $2 != *.py ]] || command=("$python" -B "$2")
    # The GPU suite, which the other tests of test_ptx interpret, has no build with sanitizers.
    [[ $2 != build/asan/bin/test_ptx ]] || command+=('*machine*')
    [[ $2 != build/asan/* ]] || command=("${fixed[@]}" "${command[@]}")
    [ -z "$3" ] || command=(env "QUERN_SHARE=$3" "${command[@]}")
    run "$1" "$2${3:+ $3}" "${command[@]}"
}

# In how many shares a program's cases are run, if that takes minutes; `make test`
# runs the first.
shares_of() { # program
    case $1 in
    */test_ptx) echo 32 ;;
    */test_cli | */test_host) echo 16 ;;
    */test_compile) echo 12 ;;
    */test_api | tests/numbers/check.py) echo 4 ;;
    *) echo 1 ;;
    esac
}

# The longest first, so that no core is idle in the end.
programs() { # folder
    printf '%s\n' "$1"/test_{cli,compile,gen,ptx,api,host,launches,runtime} "$1"/test_* | awk '!seen[$0]++'
}

jobs=()
shares=() # that may be left out
add() { # list, program, shares, the first of them, the last one
    local -n list=$1
    local i
    for ((i = $4; i <= $5; i++)); do
        list+=("$2$([ "$3" = 1 ] || echo " $i/$3")")
    done
}

if [ "$part" = test ]; then
    for program in $(programs build/bin) tests/{numbers,report,docs,install}/check.py; do
        add jobs "$program" "$(shares_of "$program")" 0 0
    done
else
    for program in $(programs build/asan/bin); do
        count=$(shares_of "$program")
        case $program in
        # CUDA kernels are the same under sanitizers, which watch the programs alone.
        */test_ptx | */test_compile)
            add jobs "$program" $((16 * count)) 0 0
            add shares "${program/asan\//}" "$count" 1 $((count - 1))
            ;;
        *) add jobs "$program" 1 0 0 ;;
        esac
    done
    count=$(shares_of tests/numbers/check.py)
    add jobs tests/numbers/check.py "$count" 1 $((count - 1))
    first=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) * 5 % ${#shares[@]}))
    shares=("${shares[@]:first}" "${shares[@]:0:first}")
fi
certain=${#jobs[@]} # that are never left out
jobs+=("${shares[@]}")

log_of() { # program, share
    local name=${1##*/} folder=build/log
    [[ $1 != *.py ]] || name=${1%/*} name=${name##*/}
    [[ $1 != build/asan/* ]] || folder=build/asan/log
    echo "$folder/$name${2:+.${2%/*}}.txt"
}

# Show what has ended since.
declare -A unseen
rows=()
show_ended() {
    local log
    for log in "${!unseen[@]}"; do
        [ -e "$log.counts" ] || continue
        show "$log"
        unset "unseen[$log]"
    done
}

# As many at once as there are cores.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
mkdir -p build/log build/asan/log
rm -f build/log/*.counts build/log/*.shown build/asan/log/*.counts build/asan/log/*.shown
for ((j = 0; j < ${#jobs[@]}; j++)); do
    while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do
        wait -n
        show_ended
    done
    if ((j >= certain && $(date +%s) >= ${QUERN_TESTS_END:-9999999999})); then
        echo "${jobs[j]}"
        echo "    skipped: the time for tests was over"
        skipped=$((skipped + 1))
        continue
    fi
    read -r program share <<<"${jobs[j]}"
    log=$(log_of "$program" "$share")
    unseen[$log]=1
    start "$log" "$program" "$share" &
done
wait
show_ended
for log in "${!unseen[@]}"; do
    show "$log"
done
if [ "$part" != test ] || [ ! -x build/bin/gpu_suite ]; then
    :
elif have_gpu; then
    run build/log/gpu_suite.txt build/bin/gpu_suite build/bin/gpu_suite
    show build/log/gpu_suite.txt
else
    echo "build/bin/gpu_suite"
    echo "    skipped: needs an NVIDIA GPU of compute capability 9.0"
    skipped=$((skipped + 1))
fi

# Seconds of the clock and of processors, of what the Makefile built, too.
printf '\n%8s %10s %7s %7s %8s\n' seconds processors passed failed skipped
{
    cat build/log/built 2>/dev/null
    printf '%s\n' "${rows[@]}"
} | awk '{
        of = $7
        for (i = 8; i <= NF; i++)
            of = of " " $i
        printf "%8.1f %10.1f %7s %7s %8s  %s\n", $1, $2 + $3, $4, $5, $6, of
        processors += $2 + $3
    }
    END { printf "%8s %10.1f %26s\n", "", processors, "in all" }'
# How each failed job began, once more: a log of CI may be cut to its end.
for shown in "${broken[@]}"; do
    head -n 8 "$shown" | cut -c 1-160
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
