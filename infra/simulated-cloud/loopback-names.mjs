import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) that makes every name under `.localhost` mean this machine, as RFC 6761 section 6.3 asks of
 * resolvers but not every Linux does. Plain JavaScript, so that it loads on every Node without type stripping.
 */

const LOOPBACK = { address: "127.0.0.1", family: 4 };
const isLocal = (name) => typeof name === "string" && /\.localhost\.?$/i.test(name);

const lookup = dns.lookup;
dns.lookup = function loopbackLookup(name, options, callback) {
  if (!isLocal(name)) return lookup.call(dns, name, options, callback);
  const done = typeof options === "function" ? options : callback;
  const all = typeof options === "object" && options !== null && options.all === true;
  process.nextTick(() => (all ? done(null, [{ ...LOOPBACK }]) : done(null, LOOPBACK.address, LOOPBACK.family)));
  return {};
};
// `util.promisify` finds the names of the results in a property of the function.
Object.defineProperties(dns.lookup, Object.getOwnPropertyDescriptors(lookup));

const lookupPromise = dns.promises.lookup;
dns.promises.lookup = async function loopbackLookup(name, options) {
  if (!isLocal(name)) return lookupPromise.call(dns.promises, name, options);
  const all = typeof options === "object" && options !== null && options.all === true;
  return all ? [{ ...LOOPBACK }] : { ...LOOPBACK };
};

syncBuiltinESMExports();
