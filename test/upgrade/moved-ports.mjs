import { Socket } from "node:net";

/**
 * Preload (`node --import`) for a store of another run: its rows contain vault URLs with the port of the simulated cloud at
 * that time, which may be in use now. `MOVED_PORTS`, such as `34199:40063`, redirects connections to names under `.localhost`.
 */
const [from, to] = process.env.MOVED_PORTS.split(":").map(Number);

const { connect } = Socket.prototype;
Socket.prototype.connect = function (...args) {
  // Options, or an array of options and a callback, as Node itself calls it.
  const [options, ...rest] = Array.isArray(args[0]) ? args[0] : args;
  if (Number(options?.port) !== from || !String(options.host).endsWith(".localhost")) return connect.apply(this, args);
  return connect.call(this, { ...options, port: to }, ...rest);
};
