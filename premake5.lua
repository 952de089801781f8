-- SPDX-License-Identifier: Apache-2.0
-- The build, for premake 5 and for Debian's premake 4. The Makefile calls it; it writes into build/
-- alone. Configurations: release; asan (AddressSanitizer and UBSan) below build/asan/; and, of
-- what `make tsan` and `make fuzz` run, tsan (ThreadSanitizer) and fuzz (libFuzzer, with clang)
-- below build/tsan/ and build/fuzz/; aarch64, release for another machine (.ci/cross).
--
-- The generator makes a part of its own input, so the Makefile builds in phases:
--   embed -> gen/embedded.c -> quern_boot -> gen/registry.c, gen/host/*.c -> everything else

local workspace = workspace or solution -- premake 4's names
local filter = filter or configuration
local exclude = removefiles or excludes
local keep_symbols = symbols and function () symbols "On" end or function () flags { "Symbols" } end

local ROOTS = { release = "build", asan = "build/asan", tsan = "build/tsan", fuzz = "build/fuzz",
  aarch64 = "build/aarch64" }
local HERE = os.getcwd():gsub("'", "'\\''"):gsub("#", "\\#"):gsub("%$", "$$$$") -- for a shell, for make
local ORIGIN = "'$$ORIGIN%s'" -- the loading file's folder; one $ is make's

workspace "quern"
  location "build"
  configurations { "release", "asan", "tsan", "fuzz", "aarch64" }
  language "C"
  -- premake 4 knows neither cdialect nor warnings, so each flag is written out.
  buildoptions {
    "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-pthread",
    -- Sums are promised to the bit, also by references: nothing may be fused or reordered.
    "-ffp-contract=off", "-fno-fast-math",
    "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wstrict-prototypes",
    "'-ffile-prefix-map=" .. HERE .. "=.'", -- no path of this machine in what is installed
  }
  linkoptions { "-pthread", "-Wl,-z,relro,-z,now" }

local function begin (name, what, target, folder, rpath)
  project(name)
  kind(what)
  location "build"
  targetname(target)
  includedirs { "runtime", "gen" }
  keep_symbols()
  for configuration, root in pairs(ROOTS) do
    filter(configuration)
    targetdir(root .. "/" .. folder)
    objdir(root .. "/obj/" .. name)
  end
  filter "asan" -- -g1: lines for the reports, in two thirds of the time that all takes
  buildoptions { "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined" }
  linkoptions { "-fsanitize=address,undefined" }
  filter "tsan"
  buildoptions { "-O1", "-fno-omit-frame-pointer", "-fsanitize=thread" }
  linkoptions { "-fsanitize=thread" }
  filter "fuzz"
  buildoptions { "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined",
    "-fsanitize=fuzzer-no-link,address,undefined", "-Wno-int-in-bool-context" }
  linkoptions { "-fsanitize=address,undefined" }
  filter "release or aarch64"
  buildoptions { "-O2" }
  filter {}
  if rpath then
    linkoptions { "-Wl,-rpath," .. ORIGIN:format(rpath) }
  end
end

-- What the library itself needs; the drivers are opened at run time.
local LIBRARY = { "md", "dl", "m" }

local function archive (name)
  begin(name, "StaticLib", name, "lib")
end

-- Where `make install` may put libraries: COUPLED: LIBDIR
local LIBDIRS = "/../lib"
local triplet = io.popen("${CC:-cc} -print-multiarch 2>/dev/null"):read("*l") or ""
for _, folder in ipairs { "/../lib64", triplet ~= "" and "/../lib/" .. triplet or nil } do
  LIBDIRS = LIBDIRS .. ":$$ORIGIN" .. folder
end

local function program (name, target)
  begin(name, "ConsoleApp", target or name, "bin", LIBDIRS)
end

-- The number of the shared libraries' ABI: the first one of QUERN_VERSION. COUPLED: soname
local VERSION = io.open("runtime/quern.h"):read("*a"):match('QUERN_VERSION "(%d+)')

-- Everything that lies in the archives `from`, as a shared library. Programs look for it by its name
-- with the number: a second name of the same file, as links do not travel.
local function shared (name, from)
  begin(name, "SharedLib", name, "lib", "")
  links(from)
  linkoptions { "-Wl,-soname,lib" .. name .. ".so." .. VERSION }
  postbuildcommands { "ln -f $(TARGET) $(TARGET)." .. VERSION }
  for configuration, root in pairs(ROOTS) do
    filter(configuration)
    for _, archive in ipairs(from) do
      linkoptions { "-Wl,--whole-archive,../" .. root .. "/lib/lib" .. archive .. ".a,--no-whole-archive" }
    end
  end
  filter "release or aarch64" -- programs, not libraries, hold clang's sanitizers
  linkoptions { "-Wl,-z,defs" }
  filter {}
end

-- ------------------------------------------------------------------------------ the generator

-- Debian's liblua5.4.a is linked into our own library, so that no program needs Lua installed. It is
-- PIE code, not PIC: the three streams of stdio would need copies, hence --wrap (gen/lua/luaio.c).
local LUA = { "-l:liblua5.4.a", "-lm", "-lmd", "-Wl,--exclude-libs,liblua5.4.a",
  "-Wl,--wrap=stderr,--wrap=stdin,--wrap=stdout" }

program "embed"
  files { "gen/embed.c" }

archive "quern_gen_static"
  files { "gen/**.c", "gen/**.h", "build/gen/embedded.c", "runtime/base/expr.c" }
  exclude { "gen/embed.c", "gen/boot.c" }

shared("quern_gen", { "quern_gen_static" })
  linkoptions(LUA)

program "quern_boot"
  files { "gen/boot.c" }
  links { "quern_gen" }

-- ------------------------------------------------------------------------------ the library

-- COUPLED: folders of the runtime
local RUNTIME = { "base", "device", "problem", "code", "tuned", "choose", "quantize", "route", "product",
  "cublaslt", "mlp", "queue", "layer", "tune", "api" }

archive "quern_static"
  filter "release or aarch64" -- elsewhere -O1 is enough, and half of the time
  buildoptions { "-O3" }
  filter {}
  files { "runtime/*.c", "runtime/*.h" }
  for _, folder in ipairs(RUNTIME) do
    files { "runtime/" .. folder .. "/*.c", "runtime/" .. folder .. "/*.h" }
  end

-- The descriptions of all kernels, and those that the host runs: nine tenths of the library. As
-- runtime/device/host_compile.c, with -O2: their vectors are written out, so -O3 only takes twice as long.
archive "quern_kernels"
  files { "build/gen/registry.c", "build/gen/host/*.c" }

-- libquern.a, for users that link it statically, has the members of both archives.
shared("quern", { "quern_static", "quern_kernels" })
  links(LIBRARY)
  postbuildcommands { "printf 'create %s.a\\naddlib %s_static.a\\naddlib %s_kernels.a\\nsave\\n' " ..
    "$(TARGETDIR)/libquern $(TARGETDIR)/libquern $(TARGETDIR)/libquern | $(AR) -M" }

-- PyTorch's operators: libtorch is found when it is loaded. An error passes through as a C++ exception.
begin("quern_torch", "SharedLib", "quern_torch", "lib", "")
  files { "runtime/binding/*.c", "runtime/binding/*.h", "runtime/torch/*.c", "runtime/torch/*.h" }
  links { "quern" }
  links { "dl" }
  buildoptions { "-fexceptions" }
  filter "release or aarch64"
  linkoptions { "-Wl,-z,defs" }
  filter {}

-- XLA's custom call, for jax: XLA calls it, it calls XLA through what it is given.
begin("quern_jax", "SharedLib", "quern_jax", "lib", "")
  files { "runtime/binding/*.c", "runtime/binding/*.h", "runtime/jax/*.c", "runtime/jax/*.h" }
  links { "quern" }
  links { "dl" }
  filter "release or aarch64"
  linkoptions { "-Wl,-z,defs" }
  filter {}

-- What the program and the tests check results with: problems with data, references, verdicts.
archive "quern_oracle"
  files { "runtime/oracle/*.c", "runtime/oracle/*.h" }

-- Checkpoints in safetensors files, as operands and back.
archive "quern_pack"
  files { "runtime/pack/*.c", "runtime/pack/*.h" }

-- libquern.so comes after the static library, so that of its symbols only qn_registry_builtin is
-- taken: the program has code of its own, and shares the kernels.
program("quern_cli", "quern")
  files { "runtime/cli/*.c", "runtime/cli/*.h" }
  includedirs { "runtime/cli" }
  links { "quern_gen", "quern_pack", "quern_oracle", "quern_static", "quern" }
  linkoptions { "-Wl,--exclude-libs,libquern_static.a" }
  links(LIBRARY)
  links { "cjson" }

-- ------------------------------------------------------------------------------ the tests

-- What tests of several areas share: cases with data, references, steps.
archive "tests_support"
  files { "tests/support/*.c", "tests/support/*.h" }
  includedirs { "tests" }

-- tests/AREA/*.c is one program, build/bin/test_AREA, with everything within reach: internal
-- functions of both libraries too. `borrowed` are libraries before those.
local function test (area, borrowed, target)
  if #os.matchfiles("tests/" .. area .. "/*.c") == 0 then return end
  program(target or "test_" .. area)
  files { "tests/" .. area .. "/*.c", "tests/" .. area .. "/*.h" }
  exclude { "tests/" .. area .. "/fake_*.c" }
  includedirs { "runtime/cli", "tests" }
  links(borrowed or {})
  links { "quern_static", "quern_kernels", "quern_gen" }
  links(LIBRARY)
  links { "cmocka", "cjson" }
end

test("cli", { "quern_oracle" })
test "gen"
test("fuzz", { "quern_pack", "quern_oracle" })
filter "fuzz" -- libFuzzer has a main of its own
buildoptions { "-DFUZZ_LIBFUZZER" }
linkoptions { "-fsanitize=fuzzer", "-rdynamic" }
filter {}
test("host", { "tests_support", "quern_oracle" })
test("compile", { "quern_oracle" })
test "numbers"
files { "build/gen/embedded.c" }
test "launches"
local SYSTEM = { "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc", -- memory.c
  "-Wl,--wrap=openat,--wrap=mkdirat,--wrap=renameat,--wrap=unlinkat", -- system.c
  "-Wl,--wrap=fstat,--wrap=fstatat,--wrap=read,--wrap=write,--wrap=close,--wrap=flock",
  "-Wl,--wrap=time,--wrap=nanosleep,--wrap=posix_spawn,--wrap=pthread_create" }
test("runtime", { "tests_support" })
linkoptions(SYSTEM)
test("api", { "tests_support", "quern_oracle" })
files { "tests/launches/lines.c" }
for _, name in ipairs { "support", "memory", "system" } do
  files { "tests/runtime/" .. name .. ".c" }
end
linkoptions(SYSTEM)
test("pack", { "quern_pack", "quern_oracle" })
files { "tests/runtime/memory.c" }
linkoptions { "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=open" }
test("gpu", { "tests_support", "quern_oracle" }, "gpu_suite")
test("ptx", { "tests_support" })
files { "build/gen/embedded.c" }

-- Stand-ins for the CUDA driver and its compiler, which the runtime opens by name.
for _, path in ipairs(os.matchfiles("tests/runtime/fake_*.c")) do
  local name = path:match("([%w_]+)%.c$")
  begin(name, "SharedLib", name, "lib", "")
  targetprefix ""
  files { path, (path:gsub("%.c$", "/*.c")) }
end

-- The CUDA driver and its compiler in one: a GPU that interprets PTX.
begin("fake_ptx", "SharedLib", "fake_ptx", "lib", "")
  targetprefix ""
  files { "tests/ptx/machine/*.c", "tests/ptx/machine/*.h", "runtime/device/library.c" }
  links { "dl", "m" }
