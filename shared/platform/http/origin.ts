import ipaddr from "ipaddr.js";
import { Problem } from "./problem.ts";

/**
 * Our own origin as browsers see it: PUBLIC_BASE_URL's, never what the Host header says. Without it the request's own on a
 * loopback address, where nobody but this machine asks; undefined elsewhere.
 */
export function ownOrigin(url: URL, publicBaseUrl: string | undefined): string | undefined {
  if (publicBaseUrl !== undefined) return new URL(publicBaseUrl).origin;
  return isLoopback(url.hostname) ? url.origin : undefined;
}

/** Of `URL.hostname`: `localhost` (RFC 6761, 6.3) or an address that never leaves the machine. */
export function isLoopback(hostname: string): boolean {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  if (host === "localhost" || host.endsWith(".localhost")) return true;
  return ipaddr.isValid(host) && ipaddr.process(host).range() === "loopback";
}

/**
 * Refuses what another site made a browser send: browsers say where a request comes from, and no page can change it.
 * https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
 *
 * @throws {Problem} crossSite
 */
export function requireSameOrigin(headers: Headers, origin: string | undefined): void {
  const site = headers.get("sec-fetch-site");
  const given = headers.get("origin");
  if (site === null ? origin !== undefined && given === origin : site === "same-origin") return;
  throw new Problem(
    "crossSite",
    "Sessions can be created and used for changes only from a page of this service. Programs get a token (POST /auth/login without session, or POST /auth/tokens) and send it in the header Authorization: Bearer <token>.",
  );
}
