import { Socket } from "node:net";

/**
 * Preload (`node --import`) of the upgrade test. The rows of a recorded store contain vault URLs with the port that the simulated
 * cloud had during the recording. `MOVED_PORTS=34199:40063` redirects connections from that port to the current one, for hosts under
 * `.localhost`.
 */
const [from, to] = process.env.MOVED_PORTS.split(":").map(Number);

const { connect } = Socket.prototype;
Socket.prototype.connect = function (...args) {
  // Node itself passes one array with the options and a callback. Other callers pass the options directly.
  const [options, ...rest] = Array.isArray(args[0]) ? args[0] : args;
  if (Number(options?.port) !== from || !String(options.host).endsWith(".localhost")) return connect.apply(this, args);
  return connect.call(this, { ...options, port: to }, ...rest);
};
