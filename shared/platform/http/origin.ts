import ipaddr from "ipaddr.js";
import { Problem } from "./problem.ts";

/**
 * Returns the service's own origin as browsers see it: the origin of PUBLIC_BASE_URL, never the Host header. If it is not set,
 * returns the request's origin on a loopback address, which only the local machine can use, and undefined elsewhere.
 */
export function ownOrigin(url: URL, publicBaseUrl: string | undefined): string | undefined {
  if (publicBaseUrl !== undefined) return new URL(publicBaseUrl).origin;
  return isLoopback(url.hostname) ? url.origin : undefined;
}

/** Returns whether `URL.hostname` is `localhost` (RFC 6761, 6.3) or a loopback address. */
export function isLoopback(hostname: string): boolean {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  if (host === "localhost" || host.endsWith(".localhost")) return true;
  return ipaddr.isValid(host) && ipaddr.process(host).range() === "loopback";
}

/**
 * Rejects requests of programs in a browser on another site. Programs outside of a browser send no origin.
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#security-warning
 *
 * @throws {Problem} crossSite
 */
export function requireOwnOrigin(headers: Headers, origin: string | undefined): void {
  const given = headers.get("origin");
  if (given === null || given === origin) return;
  throw new Problem(
    "crossSite",
    "The header Origin names another site. Programs outside of a browser send no such header. The origin of this service is that of the setting PUBLIC_BASE_URL.",
  );
}

/**
 * Rejects requests that another site made a browser send. Browsers report the origin of a request, and scripts can't change it.
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
