// The strict driver reads of PTX text whether the driver would accept it, and what a kernel's
// launch must look like.
#include "strict.h"
#include <ctype.h>

void check_ptx(const char *fn, const char *text) {
	int major = 0, minor = 0, sm = 0;
	const char *v = strstr(text, ".version"), *t = strstr(text, ".target");
	if (!v || sscanf(v, ".version %d.%d", &major, &minor) != 2 || major * 10 + minor > 90) die(fn, "PTX version %d.%d, the driver takes 9.0", major, minor);
	if (!t || sscanf(t, ".target sm_%d", &sm) != 1 || sm > 90) die(fn, "PTX for sm_%d, the GPU is sm_90", sm);
	if (!strstr(text, ".address_size 64")) die(fn, "PTX without .address_size 64");
	for (const char *p = text; *p; p++) {
		if (p[0] == '/' && p[1] == '/') p += strcspn(p, "\n"); // the compiler accepts any byte in a comment
		if ((unsigned char)*p >= 128) die(fn, "PTX with a byte %#x", (unsigned char)*p);
	}
}

static size_t size_of(const char *type) {
	static const struct { const char *t; size_t n; } list[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
	while (isalpha((unsigned char)*type)) type++;
	for (size_t i = 0; i < 4; i++)
		if (!strncmp(type, list[i].t, strlen(list[i].t)) && !isdigit((unsigned char)type[strlen(list[i].t)])) return list[i].n;
	return 0;
}

// space reads the type, the alignment and the length of a declaration after its state space, and
// returns where the declaration ends.
static const char *space(const char *fn, const char *p, size_t *align, size_t *bytes) {
	size_t element = 0, count = 1;
	*align = 0;
	for (; *p && !strchr(",;)", *p); p++) {
		if (!strncmp(p, ".align", 6)) *align = strtoul(p + 6, NULL, 10), p += 6;
		else if (*p == '.' && strncmp(p, ".ptr", 4) && size_of(p + 1)) element = size_of(p + 1);
		else if (*p == '[') count = strtoul(p + 1, NULL, 10);
	}
	if (!element) die(fn, "a declaration of no type");
	if (!*align) *align = element;
	*bytes = element * count;
	return p;
}

void parse_entry(const char *fn, struct object *f, const char *text) {
	size_t align, bytes, end = 0;
	const char *p = text + strspn(text, " \t\n"), *body;
	if (*p == '(') {
		const char *close = strchr(p, ')');
		while ((p = strstr(p, ".param")) && p < close) {
			p = space(fn, p + 6, &align, &bytes);
			end = (end + align - 1) / align * align + bytes;
		}
		p = close;
	}
	f->params = end;
	if (!(body = strchr(p, '{'))) die(fn, "kernel %s has no body", f->name);
	f->most[0] = f->most[1] = f->most[2] = 0;
	const char *most = strstr(p, ".maxntid"), *exact = strstr(p, ".reqntid");
	if (exact && exact < body) most = exact;
	if (most && most < body) {
		f->most[1] = f->most[2] = 1;
		sscanf(most + 8, " %u , %u , %u", &f->most[0], &f->most[1], &f->most[2]);
	} else
		die(fn, "kernel %s says no .maxntid: the compiler may give its threads more registers than a block of them has", f->name);
	f->threads = f->most[0] * f->most[1] * f->most[2];
	// Shared memory of the module and of this kernel: all declarations before the next entry.
	size_t from = 0;
	const char *module = ((struct object *)f->of)->text, *next = strstr(body, ".entry");
	for (const char *s = module; (s = strstr(s, ".shared")) && (!next || s < next); s++) {
		if (s[7] != ' ' && s[7] != '\t') continue; // this is an instruction
		const char *line = s;
		while (line > module && line[-1] != '\n') line--;
		if (strstr(line, "//") && strstr(line, "//") < s) continue;
		if (strstr(line, ".extern") && strstr(line, ".extern") < s) continue;
		const char *at = s + 7 + strspn(s + 7, " \t");
		if (*at != '.') continue;
		space(fn, at, &align, &bytes);
		from = (from + align - 1) / align * align + bytes;
	}
	f->shared = from;
	f->dynamic = from < 49152 ? 49152 - from : 0;
}

void launchable(const char *fn, struct object *f, const unsigned *grid, const unsigned *block, unsigned shared, void **params, void **extra) {
	static const unsigned grids[3] = {2147483647, 65535, 65535}, blocks[3] = {1024, 1024, 64};
	for (int i = 0; i < 3; i++) {
		if (!grid[i] || grid[i] > grids[i]) die(fn, "%s: grid (%u, %u, %u)", f->name, grid[0], grid[1], grid[2]);
		if (!block[i] || block[i] > blocks[i]) die(fn, "%s: block (%u, %u, %u)", f->name, block[0], block[1], block[2]);
		if (block[i] > f->most[i] && f->most[i]) die(fn, "%s: block (%u, %u, %u), it says .maxntid %u, %u, %u", f->name, block[0], block[1], block[2], f->most[0], f->most[1], f->most[2]);
	}
	if ((uint64_t)block[0] * block[1] * block[2] > 1024) die(fn, "%s: %u threads", f->name, block[0] * block[1] * block[2]);
	if (shared > f->dynamic) die(fn, "%s: %u bytes of dynamic shared memory beside %zu, %zu were asked for by cuFuncSetAttribute", f->name, shared, f->shared, f->dynamic);
	if (params) die(fn, "%s: parameters one by one", f->name);
	if (!extra) {
		if (f->params) die(fn, "%s: no parameters, it takes %zu bytes", f->name, f->params);
		return;
	}
	readable(fn, "extra", extra, 5 * sizeof *extra);
	if (extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END) die(fn, "%s: the keys of extra", f->name);
	readable(fn, "size of the parameters", extra[3], sizeof(size_t));
	size_t n = *(size_t *)extra[3];
	if (n != f->params || n > 4096) die(fn, "%s: %zu bytes of parameters, the text declares %zu", f->name, n, f->params);
	readable(fn, "parameters", extra[1], n);
}
