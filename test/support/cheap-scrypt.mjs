import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) of the tests' processes and of hosts and commands that they start: scrypt at an eightieth of its
 * cost, whatever parameters it is given. What a hash says of its parameters is then untrue, so both sides must have it.
 *
 * Plain JavaScript, so that it loads on every Node without type stripping.
 */
const crypto = createRequire(import.meta.url)("node:crypto");
const { scrypt } = crypto;
crypto.scrypt = (password, salt, length, options, done) =>
  scrypt(password, salt, length, { ...options, N: 2 ** 10, p: 1 }, done);
syncBuiltinESMExports();
