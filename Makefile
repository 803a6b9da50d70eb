# weir is built with plain GNU Make. `make help` lists the targets; ./dev installs what this needs.
#
#   CC=clang             another compiler
#   SANITIZER=address    with AddressSanitizer and UndefinedBehaviorSanitizer; SANITIZER=thread, SANITIZER=fuzzer
#   ERR=1                warnings are errors
#   CROSS=aarch64-linux-gnu-   for another machine

MAKEFLAGS += --no-builtin-rules
CC := $(if $(CROSS),$(CROSS)gcc,$(if $(filter default undefined,$(origin CC)),gcc,$(CC)))
AR := $(CROSS)ar
VERSION := $(shell sed -n 's/.*WEIR_VERSION "\(.*\)"/\1/p' include/weir/weir.h)
SONAME := libweir.so.0
STORE_SONAME := libweir-store.so.0

# Every way of building has a folder of its own, so that none disturbs another.
B := build/$(subst /,_,$(CC))$(if $(SANITIZER),-$(SANITIZER))$(if $(COVERAGE),-coverage)

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wvla -Wcast-align -Wwrite-strings $(if $(ERR),-Werror)
CFLAGS ?= $(if $(SANITIZER),-O1 -g1,-O2 -g)
# Hardening as the distributions build it; tests/hardening.sh looks for it in what was built. Not under a sanitizer, which
# checks more and whose interceptors know no fortified calls.
MACHINE := $(shell $(CC) -dumpmachine)
ifeq ($(SANITIZER),)
HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
	$(if $(filter x86_64%,$(MACHINE)),-fcf-protection) $(if $(filter aarch64%,$(MACHINE)),-mbranch-protection=standard)
HARDEN_LINK := -Wl,-z,relro,-z,now,-z,noexecstack
# The arithmetic of a decision writes to no array that a length from outside could overrun; canaries for every local whose
# address is taken cost it 4 % of its instructions. Functions with character arrays keep theirs.
HARDEN_HOT := -fstack-protector -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE= $(CFLAGS) $(HARDEN) $(WARN) -fPIC -fvisibility=hidden -fno-strict-overflow -MMD -MP -DWEIR__BUILD -Iinclude -Isrc \
	-I$B/include
# What the libraries stand on, besides xxHash's header: libweir, and libweir-store. A cross build takes it from a folder that ./dev fills.
LIB_PACKAGES := yaml-0.1 libpcre2-8
STORE_PACKAGES := hiredis openssl
ifdef CROSS
FOREIGN ?= build/$(CROSS)libs
ALL_CFLAGS += -isystem $(FOREIGN)/usr/include -isystem $(FOREIGN)/usr/include/$(CROSS:-=)
LIB_LIBS := -L$(FOREIGN)/usr/lib/$(CROSS:-=) -lyaml -lpcre2-8 -pthread
STORE_LIBS := -L$(FOREIGN)/usr/lib/$(CROSS:-=) -lhiredis -lssl -lcrypto
else
# Both machines have 64-bit offsets anyway; the macro would only rename the calls that tests make fail.
ALL_CFLAGS += $(filter-out -D_FILE_OFFSET_BITS=64,$(shell pkg-config --cflags $(LIB_PACKAGES) $(STORE_PACKAGES)))
LIB_LIBS := $(shell pkg-config --libs $(LIB_PACKAGES)) -pthread
STORE_LIBS := $(shell pkg-config --libs $(STORE_PACKAGES))
endif
LDLIBS = $(STORE_LIBS) $(LIB_LIBS)

ifeq ($(SANITIZER),address)
SAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DWEIR__SANITIZED
else ifeq ($(SANITIZER),thread)
# TSan wants the compiler's 16-byte operation, which needs -mcx16 and libatomic; see src/base/atomic.h.
# Its model knows no fences, and needs none: it runs every atomic in one total order.
SAN := -fsanitize=thread -DWEIR__TSAN -mcx16 $(if $(findstring gcc,$(CC)),-Wno-tsan)
LIB_LIBS += -latomic
else ifeq ($(SANITIZER),fuzzer)
SAN := -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all -DWEIR__SANITIZED
endif
# Variables without a value get a pattern instead of zeros left on the stack, so that text without its end is read past it.
SAN += $(if $(SANITIZER),-ftrivial-auto-var-init=pattern)
# What gcc guesses of values, it guesses worse of code that checks itself; without a sanitizer these are on.
ALL_CFLAGS += $(SAN) $(if $(SANITIZER),$(if $(findstring gcc,$(CC)),-Wno-format-truncation -Wno-maybe-uninitialized))
ALL_LDFLAGS := $(LDFLAGS) $(HARDEN_LINK) $(SAN)

# libweir: decisions in shared memory, and rules. libweir-store: the client of a store, by which alone hiredis and OpenSSL are needed.
LIB_SRC := $(wildcard $(patsubst %,src/%/*.c,base algo table rules engine))
STORE_SRC := $(wildcard src/remote/*.c)
# The daemons, for the weir command only: weir serve and weir agent, the rules service, the queue, statistics.
DAEMON_SRC := $(wildcard $(patsubst %,src/%/*.c,config sync overload stats queue control serve))
# Another machine's curl, microhttpd, seccomp and databases are not at hand: a cross build leaves out what needs them.
CROSS_QUEUE := $(patsubst %,src/queue/%.c,ingest_commit ingest_request retry_policy queue_admin)
CROSS_CONTROL := src/control/document.c
CROSS_OUT := $(filter-out $(CROSS_QUEUE) $(CROSS_CONTROL),$(wildcard src/queue/*.c src/control/*.c)) \
	src/serve/agent_threads.c src/serve/notifier.c src/serve/privilege.c
DAEMON_SRC := $(filter-out $(if $(CROSS),$(CROSS_OUT)),$(DAEMON_SRC))
DAEMON_PACKAGES := sqlite3 libpq jansson libcrypto libcurl libmicrohttpd libseccomp
DAEMON_LIBS = -lm $(if $(CROSS),-ljansson,$(shell pkg-config --libs $(DAEMON_PACKAGES)))
CLI_SRC := $(wildcard src/cli/*.c)
# The HTTP API without HTTP, for the module only. Another machine's jansson and OpenSSL are not at hand: not with CROSS.
API_SRC := $(wildcard src/services/http/*.c)
API_PACKAGES := jansson libcrypto
# Scripts that run in the store are put together from lua/.
LIB_OBJ := $(LIB_SRC:%.c=$B/%.o)
STORE_OBJ := $(STORE_SRC:%.c=$B/%.o) $B/src/remote/script_text.o
# In the order in which the linker needs them.
LIBWEIR := $B/libweir-store.a $B/libweir.a
DAEMON_OBJ := $(DAEMON_SRC:%.c=$B/%.o) $B/src/control/dashboard_files.o $B/src/stats/membership_script.o $B/src/stats/queries_script.o $B/src/sync/keys_script.o $B/src/serve/doctor_script.o $(if $(CROSS),,$B/src/queue/redis_scripts.o)
CLI_OBJ := $(CLI_SRC:%.c=$B/%.o)
RESP_OBJ := $(patsubst %.c,$B/%.o,$(wildcard src/services/resp/*.c))
API_OBJ := $(API_SRC:%.c=$B/%.o)
# The service's messages, in the nginx module alone: compiled from proto/, with the protocol's own types beside them.
RLS_SRC := $(wildcard src/services/rls/*.c)
RLS_OBJ := $(RLS_SRC:%.c=$B/%.o)
PROTOS := $(patsubst proto/%,%,$(wildcard proto/*.proto)) $(addprefix google/protobuf/,duration.proto struct.proto wrappers.proto)
PROTO_C := $(PROTOS:%.proto=$B/proto/%.pb-c.c)
PROTO_OBJ := $(PROTO_C:.c=.o)
RLS_PACKAGES := libprotobuf-c jansson
RLS_LIBS = $(shell pkg-config --libs $(RLS_PACKAGES))
RLS_CFLAGS = $(shell pkg-config --cflags $(RLS_PACKAGES)) -isystem $B/proto
# The service is built for the nginx of this machine only, and so are its tests. Nor is it tested for another one how the
# client bears a lack of memory: OpenSSL is linked in there, and does not.
TESTS := $(patsubst %.c,$B/%,$(filter-out $(if $(CROSS),tests/unit/rls/% tests/unit/http/% tests/unit/control/% \
	$(filter-out tests/unit/queue/test_retry_policy.c,$(wildcard tests/unit/queue/*.c)) \
	tests/unit/remote/test_client_memory.c $(patsubst %,tests/unit/serve/test_%.c,listening nginx_conf processes)),\
	$(wildcard tests/unit/*/test_*.c tests/stress/test_*.c)))
FUZZERS := $(patsubst %.c,$B/%,$(wildcard fuzz/fuzz_*.c))
# Under a sanitizer a test's thousands of checks are expensive to optimize: 1.1 s instead of 0.15 s for one of 600 lines. What it
# tests is compiled as before.
TEST_CFLAGS = $(ALL_CFLAGS) $(if $(SANITIZER),-O0)

# Another machine's libraries for the agent's HTTP are not at hand: a cross build has no command.
all: $(LIBWEIR) $B/libweir.so $B/libweir-store.so $(if $(CROSS),,$B/weir) $B/weir.pc $B/weir-store.pc

help:
	@echo "make            the library (static and shared), the weir command and weir.pc, in build/"
	@echo "make tests      the test programs"
	@echo "make fuzzers    the fuzz targets (CC=clang SANITIZER=fuzzer)"
	@echo "make dashboard  the dashboard alone, in build/web (needs npm's packages, by ./dev)"
	@echo "make nginx      the module for nginx (needs nginx-dev)"
	@echo "make man        the man pages and the completions for bash, zsh and fish, from the help texts and docs/"
	@echo "make diagrams   docs/images/*.svg, from docs/diagrams"
	@echo "make tidy       clang-tidy, and clang's warnings (CC=clang)"
	@echo "make syntax     the compiler's warnings about the tests, which it does not compile (CC=clang)"
	@echo "make install    into DESTDIR/PREFIX (default /usr/local), with module and systemd unit if 'make nginx' was there before"
	@echo "make deb        a Debian package, build/weir_VERSION_ARCH.deb (needs nginx-dev and dpkg-dev)"
	@echo "make clean      removes build/"
	@echo "CC=clang, SANITIZER=address|thread|fuzzer, ERR=1, CROSS=aarch64-linux-gnu- change how"

# What can be compiled before nginx and npm are there: for ./dev run.
objects: $(LIB_OBJ) $(STORE_OBJ) $(CLI_OBJ) $(filter-out %/dashboard_files.o,$(DAEMON_OBJ))
tests: $(TESTS)
fuzzers: $(FUZZERS)

# Only xxHash's own headers, so that a cross build does not see the rest of this machine's /usr/include.
$B/include/xxhash.h:
	@mkdir -p $(@D)
	ln -sf $(shell pkg-config --variable=includedir libxxhash)/xxhash.h $@
	ln -sf $(shell pkg-config --variable=includedir libxxhash)/xxh3.h $(@D)/xxh3.h

$B/%.o: %.c | $B/include/xxhash.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(filter $B/src/algo/% $B/src/table/% $B/src/engine/take% $B/src/engine/fast_result.o $B/src/engine/clock.o,$(LIB_OBJ)): ALL_CFLAGS += $(HARDEN_HOT)
# A check needs at most 16 KiB of stack in all (tests/unit/engine/test_stack.c); no single frame of it may be large.
$B/src/engine/check.o $B/src/engine/check_descriptors.o: ALL_CFLAGS += $(if $(SANITIZER),,-Wframe-larger-than=4096)

$B/src/remote/script_text.c: tools/lua_to_c.py $(filter-out lua/queue% lua/hosts.lua lua/keys.lua lua/doctor.lua lua/queries.lua,$(wildcard lua/*.lua))
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py lua/main.lua > $@.new && mv $@.new $@

$B/src/remote/script_text.o: $B/src/remote/script_text.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

# The dashboard is bundled by what ./dev took from npm. Without that it is one page, which says so.
WEB_MODULES := build/node/web/node_modules
WEB_SRC := $(if $(and $(wildcard $(WEB_MODULES)/esbuild),$(shell command -v node)),$(WEB_MODULES)/.package-lock.json web/build.mjs \
	$(wildcard web/src/* web/src/views/*))
build/web/index.html: $(WEB_SRC)
	node web/build.mjs $(WEB_MODULES) $(@D)

$B/src/control/dashboard_files.c: tools/embed.py $(if $(WEB_SRC),build/web/index.html,web/without/index.html)
	@mkdir -p $(@D)
	python3 tools/embed.py $(if $(WEB_SRC),build/web,web/without) > $@.new && mv $@.new $@

$B/src/control/dashboard_files.o: $B/src/control/dashboard_files.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$B/src/stats/membership_script.c: tools/lua_to_c.py lua/hosts.lua
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py lua/hosts.lua > $@.new && mv $@.new $@

$B/src/stats/membership_script.o: $B/src/stats/membership_script.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$B/src/stats/queries_script.c: tools/lua_to_c.py lua/queries.lua
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py lua/queries.lua > $@.new && mv $@.new $@

$B/src/stats/queries_script.o: $B/src/stats/queries_script.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$B/src/sync/keys_script.c: tools/lua_to_c.py lua/keys.lua
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py lua/keys.lua > $@.new && mv $@.new $@

$B/src/sync/keys_script.o: $B/src/sync/keys_script.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$B/src/serve/doctor_script.c: tools/lua_to_c.py lua/doctor.lua
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py lua/doctor.lua > $@.new && mv $@.new $@

$B/src/serve/doctor_script.o: $B/src/serve/doctor_script.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

dashboard: build/web/index.html

$B/libweir.a: $(LIB_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$B/libweir-store.a: $(STORE_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

# The Redis protocol, for the service alone: not a part of the library.
$B/libweir-resp.a: $(RESP_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

# One run of the compiler writes them all. What it writes is not ours to warn about.
$(PROTO_C) &: $(wildcard proto/*.proto)
	@mkdir -p $B/proto
	protoc-c -Iproto -I$(shell pkg-config --variable=includedir protobuf) --c_out=$B/proto $(PROTOS)

$(PROTO_OBJ): %.o: %.c
	$(CC) -std=gnu11 $(CFLAGS) $(HARDEN) -w -fPIC -fvisibility=hidden $(SAN) -I$B/proto $(shell pkg-config --cflags libprotobuf-c) -c $< -o $@

$(RLS_OBJ): ALL_CFLAGS += $(RLS_CFLAGS)
$(RLS_OBJ): $(PROTO_C)

$B/libweir-rls.a: $(RLS_OBJ) $(PROTO_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$B/libweir-api.a: $(API_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$B/src/services/http/route.o: src/services/http/openapi.json

$B/src/serve/nginx_conf.o: src/serve/nginx.conf.in

$B/src/control/rest.o: src/control/openapi.json

$B/src/cli/options.o: src/cli/help.txt

$B/src/cli/init.o: src/cli/starter.yaml
$B/src/cli/serve_demo.o: examples/quickstart.yaml

# In the order of enum weir__rq_which.
QUEUE_LUA := $(patsubst %,lua/queue_%.lua,put claim change expire list)
$B/src/queue/redis_scripts.c: tools/lua_to_c.py lua/queue.lua $(QUEUE_LUA)
	@mkdir -p $(@D)
	python3 tools/lua_to_c.py $(QUEUE_LUA) > $@.new && mv $@.new $@

$B/src/queue/redis_scripts.o: $B/src/queue/redis_scripts.c
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(DAEMON_OBJ): ALL_CFLAGS += $(if $(CROSS),,$(shell pkg-config --cflags $(DAEMON_PACKAGES)))

$B/libweir.so: $(LIB_OBJ) src/libweir.map
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/libweir.map $(LIB_OBJ) -o $@.new $(LIB_LIBS)
	mv $@.new $@
	ln -sf libweir.so $B/$(SONAME)

# It has its own copies of the objects of src/base that it uses: libweir.so exports the API only.
STORE_BASE := $B/src/base/buffer.o
$B/libweir-store.so: $(STORE_OBJ) $(STORE_BASE) $B/libweir.so src/libweir.map
	$(CC) $(ALL_LDFLAGS) -shared -Wl,-soname,$(STORE_SONAME) -Wl,--version-script=src/libweir.map $(STORE_OBJ) $(STORE_BASE) $(if $(SANITIZER),,-Wl,-z,defs) -o $@.new \
		$B/libweir.so $(STORE_LIBS)
	mv $@.new $@
	ln -sf libweir-store.so $B/$(STORE_SONAME)

# In an archive, so that a test takes only what it needs of it, and not what that stands on.
# With the decision API's parser and writer, by which the dashboard tries a request.
$B/libweir-daemon.a: $(DAEMON_OBJ) $(addprefix $B/src/services/http/,check.o read.o write.o)
	rm -f $@
	$(AR) rcs $@ $^

$B/weir: $(CLI_OBJ) $B/libweir-daemon.a $(LIBWEIR)
	$(CC) -pie $(ALL_LDFLAGS) $^ -o $@ $(DAEMON_LIBS) $(LDLIBS)

# The gateway's and the service's modules for the nginx of this machine. SANITIZER=address works here, too.
nginx: $(LIBWEIR) $B/libweir-resp.a $B/libweir-rls.a $B/libweir-api.a
	+WEIR_CFLAGS="-DWEIR__BUILD $(if $(SANITIZER),-O1 -g1 $(SAN),$(HARDEN))" WEIR_LDFLAGS="$(HARDEN_LINK) $(SAN)" CC=$(CC) nginx/build.sh $B/nginx "$(LIBWEIR)" $B/libweir-resp.a \
		$B/libweir-rls.a $B/libweir-api.a

# All sources, as what clang-tidy finds depends on what they include; tools/tidy.sh knows those that passed.
# CC=clang: with clang's own warnings.
# TIDY_NODES: how much of a function's states the analyzer looks at; it is nearly all of the time.
TIDY_NODES ?= 225000
LIBPQ_INCLUDE = $(shell pkg-config --variable=includedir libpq)
TIDY := $(patsubst %.c,tidy/%,$(wildcard src/*/*.c src/*/*/*.c))
tidy: $(TIDY)
$(TIDY): tidy/%: %.c FORCE | $B/include/xxhash.h $(PROTO_C)
	tools/tidy.sh $< $(filter-out -MMD -MP -g -O%,$(ALL_CFLAGS)) -isystem $B/proto \
		-isystem $(LIBPQ_INCLUDE) -Xclang -analyzer-config -Xclang max-nodes=$(TIDY_NODES)

# The compiler's warnings about the tests, which are parsed and not compiled: clang's, where gcc's programs run.
SYNTAX := $(patsubst %.c,syntax/%,$(wildcard tests/unit/*/test_*.c tests/stress/test_*.c))
syntax: $(SYNTAX)
$(SYNTAX): syntax/%: %.c FORCE | $B/include/xxhash.h $(PROTO_C) $B/tests/vectors.h
	$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -I$B/tests -isystem $B/proto -isystem $(LIBPQ_INCLUDE) -fsyntax-only $<

PREFIX ?= /usr/local
$B/weir.pc $B/weir-store.pc: $B/%.pc: src/%.pc.in include/weir/weir.h FORCE
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' $< > $@

# The worked examples become a table in C: the tests need no JSON reader on any machine.
$B/tests/vectors.h: tests/worked_examples.json tools/vectors.py
	@mkdir -p $(@D)
	python3 tools/vectors.py tests/worked_examples.json > $@.new && mv $@.new $@

# Tests that make calls fail do so through the linker: the library is the one that ships.
WRAPPED := malloc calloc open mmap posix_fallocate linkat rename getrandom fstat
$B/tests/unit/engine/test_faults: ALL_LDFLAGS += $(WRAPPED:%=-Wl,--wrap=%)

CHECK_WRAPPED := malloc calloc realloc strdup tsearch aligned_alloc open read __read_chk stat fstat scandir nanosleep
$B/tests/unit/engine/test_check_faults: ALL_LDFLAGS += $(CHECK_WRAPPED:%=-Wl,--wrap=%)

$B/tests/unit/queue/test_dispatch: ALL_LDFLAGS += -Wl,--wrap=malloc
$B/tests/unit/control/test_faults: ALL_LDFLAGS += -Wl,--wrap=sqlite3_column_text
$B/tests/unit/control/test_work: ALL_LDFLAGS += -Wl,--wrap=json_loadb

# Clocks that are the test's.
$(addprefix $B/tests/unit/,stats/test_history_writer overload/test_sampler engine/test_load_page_file): ALL_LDFLAGS += -Wl,--wrap=clock_gettime

# Reads of time zones that fail.
$B/tests/unit/engine/test_timezone_hostile: ALL_LDFLAGS += -Wl,--wrap=read

# A file system with coarse times.
$B/tests/unit/engine/test_reload_disk: ALL_LDFLAGS += -Wl,--wrap=stat -Wl,--wrap=fstat

# What comes between the look and the take of a decision.
DECIDING := weir_peek weir__take_on weir_refund weir__take_all_fast
$B/tests/unit/engine/test_take_all: ALL_LDFLAGS += $(DECIDING:%=-Wl,--wrap=%)

# How often the quick way is taken.
$B/tests/unit/engine/test_fast_path_random: ALL_LDFLAGS += -Wl,--wrap=weir__take_all_fast

# What comes between the look and the take of several counters.
$B/tests/unit/engine/test_fast_path_few: ALL_LDFLAGS += -Wl,--wrap=weir__slot_look

# What comes between the look and the take of a denial.
$B/tests/unit/engine/test_negative_cache: ALL_LDFLAGS += -Wl,--wrap=weir_peek

# The client's tests talk to servers that know no script: questions and answers are plain words.
CLIENT_TESTS := $(patsubst %.c,$B/%,$(wildcard tests/unit/remote/test_client*.c))
$(CLIENT_TESTS): ALL_LDFLAGS += -Wl,--wrap=weir__script_call -Wl,--wrap=weir__script_read
$B/tests/unit/remote/test_client_memory: ALL_LDFLAGS += -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc

# What is left in freed memory.
$B/tests/unit/serve/test_nginx_conf: ALL_LDFLAGS += -Wl,--wrap=free

# libyaml's own calls fail, too, if it is linked in.
$B/tests/unit/rules/test_yaml_faults: ALL_LDFLAGS += -Wl,--wrap=malloc -Wl,--wrap=realloc -Wl,--wrap=strdup -Wl,--wrap=tsearch
$B/tests/unit/rules/test_yaml_faults: LDLIBS := -l:libyaml.a $(LDLIBS)

# The daemons are no part of the library: their tests are linked with their objects.
DAEMON_TESTS := $(foreach folder,config sync overload stats queue control serve,$(filter $B/tests/unit/$(folder)/%,$(TESTS)))
$(DAEMON_TESTS): $B/tests/%: tests/%.c $B/libweir-daemon.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) -I$B/tests $(ALL_LDFLAGS) $< $B/libweir-daemon.a $(LIBWEIR) -o $@ $(DAEMON_LIBS) $(LDLIBS)

# So are those of the Redis protocol.
$B/tests/unit/resp/%: tests/unit/resp/%.c $B/libweir-resp.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) $< $B/libweir-resp.a $(LIBWEIR) -o $@ -lm $(LDLIBS)

# The service's tests and fuzz targets need what it needs.
RLS_TESTS := $(filter $B/tests/unit/rls/%,$(TESTS)) $B/fuzz/fuzz_rls
$(RLS_TESTS): $B/libweir-rls.a
$(RLS_TESTS): ALL_CFLAGS += $(RLS_CFLAGS)
$(RLS_TESTS): LDLIBS := $B/libweir-rls.a $(LIBWEIR) $(RLS_LIBS) $(LDLIBS)

# And those of the HTTP API.
$B/tests/unit/http/%: tests/unit/http/%.c $B/libweir-api.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) $(ALL_LDFLAGS) $< $B/libweir-api.a $(LIBWEIR) -o $@ \
		$(shell pkg-config --libs $(API_PACKAGES)) $(LDLIBS)

$B/tests/%: tests/%.c $(LIBWEIR) $B/tests/vectors.h
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) -I$B/tests $(ALL_LDFLAGS) $< $(LIBWEIR) -o $@ -lm $(LDLIBS)

$B/fuzz/fuzz_api: fuzz/fuzz_api.c $B/libweir-api.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(ALL_LDFLAGS) $< $B/libweir-api.a $(LIBWEIR) -o $@ \
		$(shell pkg-config --libs $(API_PACKAGES)) $(LDLIBS)

# The command's own reading of rule files.
DOCUMENTS_OBJ := $(filter-out %/main.o %/rules_check.o,$(CLI_OBJ))
$B/fuzz/fuzz_documents: $(DOCUMENTS_OBJ)
DAEMON_FUZZERS := $(patsubst %,$B/fuzz/fuzz_%,documents ingest membership queries control)
$(DAEMON_FUZZERS): $B/fuzz/%: fuzz/%.c $B/libweir-daemon.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(ALL_LDFLAGS) $< $(filter %.o,$^) $B/libweir-daemon.a $(LIBWEIR) -o $@ $(DAEMON_LIBS) $(LDLIBS)

$B/fuzz/%: fuzz/%.c $B/libweir-resp.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(ALL_LDFLAGS) $< $B/libweir-resp.a $(LIBWEIR) -o $@ $(LDLIBS)

# The queue's storage, and the exchange with the store.
$B/bench/queue $B/bench/exchange: $B/bench/%: bench/%.c $B/libweir-daemon.a $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $< $B/libweir-daemon.a $(LIBWEIR) -o $@ $(DAEMON_LIBS) $(LDLIBS)

# The core: how fast and how small a decision is.
CORE_BENCH := $(wildcard bench/core*.c)
$B/bench/core: $(CORE_BENCH) bench/core.h $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(CORE_BENCH) $(LIBWEIR) -o $@ -lm $(LDLIBS)

# It must cost its processor less than any server costs its own.
$B/bench/resp_load: ALL_CFLAGS += -O3
$B/bench/%: bench/%.c $(LIBWEIR)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $< $(LIBWEIR) -o $@ -lm $(LDLIBS)

# The diagrams of docs/, from their sources; docs/diagrams/svg.py is a module of theirs.
diagrams: all
	for script in $(filter-out %/svg.py,$(wildcard docs/diagrams/*.py)); do python3 -B $$script || exit 1; done

# What weir says of itself, and docs/, as man pages; the former as completions for shells, too.
MAN := $(addprefix $B/man/,weir.1 weir.yaml.5 weir-rules.5 weir-nginx.5 weir-errors.5)
COMPLETIONS := $(addprefix $B/completions/,weir.bash _weir weir.fish)
man: $(MAN) $(COMPLETIONS)

$(MAN) &: $B/weir $(addprefix docs/reference/,weir-yaml.md serve.md rules.md identity.md responses.md descriptors.md nginx.md nginx-queue.md nginx-logs.md errors.md) $(addprefix tools/,man_pages.py command_help.py markdown_to_man.py troff.py)
	@mkdir -p $(@D)
	python3 -B tools/man_pages.py $B/weir docs $(@D)

$(COMPLETIONS) &: $B/weir tools/completion.py tools/command_help.py
	@mkdir -p $(@D)
	python3 -B tools/completion.py $B/weir $(@D)

install: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/weir
	install -m 755 $B/weir $(DESTDIR)$(PREFIX)/bin/
	install -m 644 include/weir/*.h $(DESTDIR)$(PREFIX)/include/weir/
	install -m 644 $(LIBWEIR) $(DESTDIR)$(PREFIX)/lib/
	for library in libweir libweir-store; do \
	    install -m 755 $B/$$library.so $(DESTDIR)$(PREFIX)/lib/$$library.so.$(VERSION) && \
	    ln -sf $$library.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/$$library.so.0 && \
	    ln -sf $$library.so.0 $(DESTDIR)$(PREFIX)/lib/$$library.so || exit 1; done
	install -m 644 $B/weir.pc $B/weir-store.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig/
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(filter %.1,$(MAN))
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man5 $(filter %.5,$(MAN))
	install -D -m 644 $B/completions/weir.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions) \
	    $B/completions/_weir
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $B/completions/weir.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/weir README.md CHANGELOG.md LICENSE SECURITY.md CONTRIBUTING.md
	cd docs && find . -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' \) \
	    -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX)/share/doc/weir/docs)/{} \;
	if [ -f $B/nginx/ngx_http_weir_module.so ]; then \
	    install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/weir $B/nginx/ngx_http_weir_module.so \
	        $B/nginx/ngx_stream_weir_module.so; \
	    install -d $(DESTDIR)$(PREFIX)/lib/systemd/system; \
	    sed 's|@BIN@|$(PREFIX)/bin|' packaging/systemd/weir.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/weir.service; \
	else echo "without weir serve's module for nginx: make nginx builds it"; fi
	if [ -z "$(DESTDIR)" ] && [ "$(PREFIX)" = /usr/local ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# A package for the distribution and the nginx of this machine, in build/.
deb: all man nginx
	rm -rf $B/deb
	+$(MAKE) -s install DESTDIR=$(CURDIR)/$B/deb PREFIX=/usr
	packaging/debian/build.sh $B/deb build

clean:
	rm -rf build

FORCE:
.PHONY: all help objects tests fuzzers dashboard nginx man diagrams tidy syntax install deb clean FORCE
.SECONDARY:
-include $(LIB_OBJ:.o=.d) $(STORE_OBJ:.o=.d) $(DAEMON_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(RESP_OBJ:.o=.d) $(RLS_OBJ:.o=.d) $(API_OBJ:.o=.d) \
	$(TESTS:=.d)
