import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) that resolves every name under `.localhost` to 127.0.0.1, as RFC 6761 section 6.3 requires. The
 * names of the simulated cloud are under `.localhost`, and not every Linux resolves them: glibc needs nss-myhostname for it,
 * which Debian does not install. A preload is needed because clients would have to pass a `lookup` option, and the Azure SDKs,
 * the AWS SDK and openid-client have none.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
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
// `util.promisify` reads the names of the results from a property of the function.
Object.defineProperties(dns.lookup, Object.getOwnPropertyDescriptors(lookup));

const lookupPromise = dns.promises.lookup;
dns.promises.lookup = async function loopbackLookup(name, options) {
  if (!isLocal(name)) return lookupPromise.call(dns.promises, name, options);
  const all = typeof options === "object" && options !== null && options.all === true;
  return all ? [{ ...LOOPBACK }] : { ...LOOPBACK };
};

syncBuiltinESMExports();
