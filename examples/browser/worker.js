// The worker that the page's program runs in. The program reads the file that the visitor picked
// as any file: the functions below are its file system, which has this one, and it is read where
// the program asks for it. Nothing leaves the machine.
importScripts("wasm_exec.js");

const missing = (name) => Object.assign(new Error(name), { code: "ENOENT" });
const reader = new FileReaderSync();

fs.open = (path, flags, mode, done) => {
  const there = globalThis.picked && path === "/" + globalThis.picked.name;
  if (there) done(null, 3);
  else done(missing(path));
};
fs.fstat = (fd, done) => done(null, {
  dev: 0, ino: 0, mode: 0o100444, nlink: 1, uid: 0, gid: 0, rdev: 0, size: globalThis.picked.size,
  blksize: 4096, blocks: 0, atimeMs: 0, mtimeMs: 0, ctimeMs: 0, isDirectory: () => false,
});
fs.stat = fs.lstat = (path, done) => fs.open(path, 0, 0, (err) => (err ? done(err) : fs.fstat(3, done)));
fs.close = (fd, done) => done(null);
let place = 0; // where a read without a position goes on
fs.read = (fd, buffer, offset, length, position, done) => {
  const at = position ?? place;
  let bytes;
  try {
    bytes = new Uint8Array(reader.readAsArrayBuffer(globalThis.picked.slice(at, at + length)));
  } catch (err) { // the file was removed or changed since it was picked
    return done(Object.assign(err, { code: "EIO" }));
  }
  buffer.set(bytes, offset);
  if (position == null) place = at + bytes.length;
  done(null, bytes.length);
};

const go = new Go();
WebAssembly.instantiateStreaming(fetch("browser.wasm"), go.importObject)
  .then((program) => go.run(program.instance))
  .then(() => postMessage({ error: "the program has ended; load the page again" }))
  .catch((err) => postMessage({ error: String(err) }));
