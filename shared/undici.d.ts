/** The parts of `undici` that are loaded by themselves (connections.ts); the package describes only its whole. */
declare module "undici/lib/dispatcher/pool.js" {
  export { Pool as default } from "undici";
}
declare module "undici/lib/dispatcher/env-http-proxy-agent.js" {
  export { EnvHttpProxyAgent as default } from "undici";
}
declare module "undici/lib/dispatcher/dispatcher.js" {
  export { Dispatcher as default } from "undici";
}
declare module "undici/lib/api/index.js" {
  const api: object;
  export default api;
}
declare module "undici/lib/core/connect.js" {
  export { buildConnector as default } from "undici";
}
