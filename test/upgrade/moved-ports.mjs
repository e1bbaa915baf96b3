import { Socket } from "node:net";

/**
 * Preload (`node --import`) for a store of another run: its rows name vaults by the port that the stand-in cloud had then,
 * which anyone may have now. `MOVED_PORTS`, such as `34199:40063`, says where connections to names under `.localhost` go
 * in its place.
 */
const [from, to] = process.env.MOVED_PORTS.split(":").map(Number);

const { connect } = Socket.prototype;
Socket.prototype.connect = function (...args) {
  // Options, or those and a callback as one array, as Node itself calls it.
  const [options, ...rest] = Array.isArray(args[0]) ? args[0] : args;
  if (Number(options?.port) !== from || !String(options.host).endsWith(".localhost")) return connect.apply(this, args);
  return connect.call(this, { ...options, port: to }, ...rest);
};
