import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import * as z from "zod";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { SignInRefused } from "./sign-in-refused.ts";

/** Time limit to complete a sign-in. */
const TIME_LIMIT_MS = 10 * MINUTE_MS;
/** Number of random bytes of a request's id, which the provider gets. */
const ID_BYTES = 16;
/** Number of random bytes of the cookie's secret, which only the browser gets. */
const SECRET_BYTES = 32;

/**
 * The cookie that binds a sign-in to the browser that started it. SAML responses are forms posted from another site, for which
 * browsers don't send Lax cookies, so the cookie of SAML is sent with requests from any site.
 * https://www.ietf.org/archive/id/draft-ietf-httpbis-rfc6265bis-20.html#section-5.6.7
 */
export const BINDING_COOKIES = {
  oidc: { name: "__Host-sso", sameSite: "Lax" },
  saml: { name: "__Host-sso-saml", sameSite: "None" },
} as const;
export type ProtocolName = keyof typeof BINDING_COOKIES;

/** Partition of the requests. The row key is the request's ID. */
const PARTITION = "requests";
const request = z.object({
  protocol: z.enum(["oidc", "saml"]),
  /** SHA-256 of the cookie, in hex. The cookie and the values derived from it are not stored. */
  cookieHash: z.string(),
  /** Path of this service to return to. */
  returnUrl: z.string(),
  /** Generation of the configuration when the sign-in started. It changes with each change of who can sign in. */
  generation: z.string(),
  /** True if the provider must authenticate the person again. */
  reauthenticate: z.boolean().optional(),
  expiresAt: z.string(),
  /**
   * Set once a call has completed the request: a random id of that call. After a lost response, storage recognizes a write by
   * its value, so the values of two calls must differ.
   */
  usedBy: z.string().optional(),
});
type RequestRecord = z.infer<typeof request>;
/** The row of a sign-in in progress. */
export const Request = entity("Sso", request);

/** A sign-in request whose cookie was verified. */
export interface SignInRequest extends Pick<RequestRecord, "returnUrl" | "generation"> {
  /** True if the provider must authenticate the person again. */
  reauthenticate?: boolean;
  /** The value that the provider returns (state, RelayState): the row's id. */
  id: string;
  /**
   * Derives a value for one purpose from the cookie and the id, so that the row does not contain it. Purposes are the nonce and
   * the PKCE verifier of OpenID Connect, and the id of a SAML request. The value has 43 characters of base64url, as PKCE
   * requires.
   */
  derived(purpose: string): string;
}

/** The stored sign-ins in progress. Each is bound to one browser by a cookie and can be completed once, on any instance. */
export interface SignInRequests {
  /** Stores a new request and returns the cookie that binds it to the browser. */
  begin(
    details: Pick<RequestRecord, "protocol" | "returnUrl" | "generation" | "reauthenticate">,
  ): Promise<{ request: SignInRequest; cookie: Cookie }>;
  /**
   * Completes the request of a callback, so that no other call can.
   *
   * @param cookie - Value of the binding cookie.
   * @param count - Counts the sign-in, after the request was verified. If it throws, the request can still be completed.
   * @throws {SignInRefused} unknownRequest, otherBrowser, expired, used
   */
  complete(
    protocol: ProtocolName,
    id: string | undefined,
    cookie: string | undefined,
    count: () => Promise<void>,
  ): Promise<SignInRequest>;
  /** Deletes expired requests. */
  cleanUp(): Promise<void>;
}

export function createSignInRequests(deps: { tables: Tables; clock: Clock; randomness: Randomness }): SignInRequests {
  const { tables, clock, randomness } = deps;
  const random = (bytes: number) => Buffer.from(randomness.bytes(bytes)).toString("base64url");

  return {
    async begin({ protocol, returnUrl, generation, reauthenticate }) {
      const [id, secret] = [random(ID_BYTES), random(SECRET_BYTES)];
      const expiresAt = new Date(clock.now().getTime() + TIME_LIMIT_MS).toISOString();
      const cookieHash = hashOf(secret);
      const row = { protocol, cookieHash, returnUrl, generation, expiresAt, ...(reauthenticate && { reauthenticate }) };
      await tables.insert(Request, PARTITION, id, row);
      return {
        request: openRequest(id, secret, row),
        cookie: bindingCookie(protocol, secret, TIME_LIMIT_MS / SECOND_MS),
      };
    },

    async complete(protocol, id, cookie, count) {
      if (id === undefined || !ID.test(id)) throw new SignInRefused("unknownRequest");
      const row = await tables.get(Request, PARTITION, id);
      if (row?.protocol !== protocol) throw new SignInRefused("unknownRequest");
      const isSameBrowser =
        cookie !== undefined && timingSafeEqual(Buffer.from(hashOf(cookie)), Buffer.from(row.cookieHash));
      if (!isSameBrowser) throw new SignInRefused("otherBrowser");
      if (Date.parse(row.expiresAt) <= clock.now().getTime()) throw new SignInRefused("expired");
      if (row.usedBy !== undefined) throw new SignInRefused("used");
      await count();
      try {
        await tables.replace(Request, { ...row, usedBy: random(ID_BYTES) });
      } catch (error) {
        if (error instanceof RowChanged) throw new SignInRefused("used");
        throw error;
      }
      return openRequest(id, cookie, row);
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for await (const rows of tables.pages(Request, {
        partitionKey: PARTITION,
        select: ["expiresAt"],
        onCorrupt: "leaveOut",
      })) {
        for (const { rowKey, expiresAt } of rows) {
          if (Date.parse(expiresAt) <= now) await tables.remove(Request, PARTITION, rowKey);
        }
      }
    },
  };
}

/** Matches 16 bytes in base64url. */
const ID = /^[\w-]{22}$/;

const hashOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");

const openRequest = (
  id: string,
  secret: string,
  { returnUrl, generation, reauthenticate = false }: Pick<RequestRecord, "returnUrl" | "generation" | "reauthenticate">,
): SignInRequest => ({
  id,
  returnUrl,
  generation,
  reauthenticate,
  derived: (purpose) => createHmac("sha256", secret).update(`${purpose}\0${id}`).digest("base64url"),
});

/** Returns the binding cookie. @param maxAge - Lifetime in seconds. 0 makes the browser delete the cookie. */
export function bindingCookie(protocol: ProtocolName, value: string, maxAge: number): Cookie {
  return { ...BINDING_COOKIES[protocol], value, path: "/", maxAge, httpOnly: true, secure: true };
}
