#!/bin/bash
# Run every test program of both configurations, side by side, and add up what
# they counted.
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

run() { # name, log, command
    local name=$1 log=$2 status=0 counts
    shift 2
    printf '%s\n' "$name"
    CMOCKA_MESSAGE_OUTPUT=TAP "$@" >"$log" 2>&1 || status=$?
    counts=$(digest "$log" "$status")
    read -r p f s <<<"$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" != 0 ]; then
        sed 's/^/    | /' "$log" | tail -n 60
    fi
}

have_gpu() {
    [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]
}

# The generator's Lua and the tests of failing allocations keep what a crash
# test kills; everything else must free what it took.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

# All programs of a configuration; what they counted goes into a file as well,
# since a configuration in the background has variables of its own.
suite() { # folder
    local program
    for program in "$1"/bin/test_*; do
        run "$program" "$1/log/${program##*/}.txt" "$program"
    done
    echo "$passed $failed $skipped" >"$1/log/counts"
}

# The sanitizers' half runs beside the other where there are two cores, and is
# shown when it is through.
mkdir -p build/log build/asan/log
rm -f build/asan/log/counts
suite build/asan >build/asan/log/output 2>&1 &
beside=$!
trap 'kill $beside 2>/dev/null; exit 130' INT TERM
[ "$(nproc)" -gt 1 ] || wait $beside
suite build
python=build/python/bin/python
[ -x "$python" ] || python=python3
run tests/numbers/check.py build/log/numbers.txt "$python" -B tests/numbers/check.py
wait $beside
cat build/asan/log/output
if read -r p f s <build/asan/log/counts; then
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
else
    echo "build/asan: ended early"
    failed=$((failed + 1))
fi
if [ ! -x build/bin/gpu_suite ]; then
    :
elif have_gpu; then
    run build/bin/gpu_suite build/log/gpu_suite.txt build/bin/gpu_suite
else
    echo "build/bin/gpu_suite"
    echo "    skipped: needs an NVIDIA GPU of compute capability 9.0"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
