import dns from "node:dns";
import { syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) for clients of the simulated cloud. It resolves every name under `.localhost` to 127.0.0.1, as RFC
 * 6761 section 6.3 requires. The names of the simulated cloud are under `.localhost`, and not every Linux resolves them: glibc
 * needs nss-myhostname for it, which Debian does not install. A preload is needed because clients would have to pass a `lookup`
 * option, and the Azure SDKs, the AWS SDK and openid-client have none.
 *
 * The file is plain JavaScript, because some Node versions that load it cannot strip types.
 */

const LOOPBACK = { address: "127.0.0.1", family: 4 };
const isLocal = (name) => typeof name === "string" && /\.localhost\.?$/i.test(name);

const originalLookup = dns.lookup;
dns.lookup = function loopbackLookup(name, options, callback) {
  if (!isLocal(name)) return originalLookup.call(dns, name, options, callback);
  const respond = typeof options === "function" ? options : callback;
  const all = typeof options === "object" && options !== null && options.all === true;
  process.nextTick(() => (all ? respond(null, [{ ...LOOPBACK }]) : respond(null, LOOPBACK.address, LOOPBACK.family)));
  return {};
};
// `util.promisify` needs the properties of the original function: they name the results.
Object.defineProperties(dns.lookup, Object.getOwnPropertyDescriptors(originalLookup));

const originalPromiseLookup = dns.promises.lookup;
dns.promises.lookup = async function loopbackLookup(name, options) {
  if (!isLocal(name)) return originalPromiseLookup.call(dns.promises, name, options);
  const all = typeof options === "object" && options !== null && options.all === true;
  return all ? [{ ...LOOPBACK }] : { ...LOOPBACK };
};

syncBuiltinESMExports();
