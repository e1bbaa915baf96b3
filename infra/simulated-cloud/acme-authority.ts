import type { ErrorResponses, IncomingRequest, Operation, Service, ServiceResponse } from "./http.ts";
import { retryAfter } from "./http.ts";
import { versionFrom } from "./vaults/identifiers.ts";
import type { CertificateVersion } from "./vaults/items.ts";
import type { VaultStore } from "./vaults/vault-store.ts";

/** A window in which a certificate should be renewed. ISO 8601. */
interface SuggestedWindow {
  start: string;
  end: string;
}

/** Let's Encrypt asks clients to wait this long until the next request. */
const RETRY_AFTER_SECONDS = 21_600;

/**
 * Simulates the part of `LetsEncrypt` that says when to renew a certificate: ACME's directory and renewal information
 * (RFC 9773). It suggests a window from two thirds of the validity on that lasts a tenth of the validity.
 */
export class AcmeAuthority {
  readonly #origin: string;
  readonly #resources: VaultStore;
  readonly #windows = new Map<string, SuggestedWindow>();

  constructor(origin: string, resources: VaultStore) {
    this.#origin = origin;
    this.#resources = resources;
  }

  /** The setting ARI_DIRECTORIES of a client. */
  get setting(): string {
    return `Let's Encrypt=${this.#origin}/directory`;
  }

  /** Suggests another window for a certificate's current version. Authorities do so before they revoke certificates. */
  suggest(vault: string, certificate: string, window: SuggestedWindow): void {
    const version = this.#resources.vault(vault)?.collections.certificates.get(certificate)?.versions.at(-1);
    if (version === undefined) throw new Error(`Unknown certificate ${vault}/${certificate}`);
    this.#windows.set(serialOf(version), window);
  }

  readonly service: Service = (request) => this.#operation(request);

  #operation({ method, segments, headers }: IncomingRequest): Operation | undefined {
    if (method !== "GET") return undefined;
    // RFC 8555, section 6.1. Pebble rejects such requests too.
    const reject = headers["user-agent"] ? undefined : () => problem(400, "malformed", "A User-Agent is required.");
    if (segments.length === 1 && segments[0] === "directory") {
      const body = { renewalInfo: `${this.#origin}/renewal-info`, meta: { profiles: { classic: "", shortlived: "" } } };
      return { name: "acme.directory", errorResponses, answer: reject ?? (() => ({ status: 200, body })) };
    }
    if (segments.length !== 2 || segments[0] !== "renewal-info") return undefined;
    const id = segments[1]!;
    return { name: "acme.renewalInfo", item: id, errorResponses, answer: reject ?? (() => this.#answer(id)) };
  }

  #answer(id: string): ServiceResponse {
    const version = this.#find(id);
    if (version === undefined) return problem(404, "malformed", "No certificate has this identifier.");
    const suggestedWindow = this.#windows.get(serialOf(version)) ?? defaultWindow(version);
    return {
      status: 200,
      headers: { "retry-after": String(RETRY_AFTER_SECONDS) },
      body: { suggestedWindow },
    };
  }

  /** Finds a version by its identifier: `base64url(authority key identifier).base64url(serial number)`. */
  #find(id: string): CertificateVersion | undefined {
    const serial = id.split(".")[1];
    for (const vault of this.#resources.vaults.values())
      for (const certificate of vault.collections.certificates)
        for (const version of certificate.versions)
          if (version.authority === "LetsEncrypt" && serialOf(version) === serial) return version;
    return undefined;
  }
}

/**
 * Returns the serial number as in an identifier: the content of its DER, which starts with a zero byte if the first bit is set.
 */
function serialOf(version: CertificateVersion): string {
  let bytes = Buffer.from(versionFrom(version.id), "hex");
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return Buffer.concat([Buffer.alloc(bytes[0]! & 0x80 ? 1 : 0), bytes]).toString("base64url");
}

function defaultWindow({ notBefore = 0, expires = 0 }: CertificateVersion): SuggestedWindow {
  const atShare = (share: number) => new Date((notBefore + (expires - notBefore) * share) * 1000).toISOString();
  return { start: atShare(2 / 3), end: atShare(2 / 3 + 0.1) };
}

const problem = (status: number, type: string, detail: string): ServiceResponse => ({
  status,
  body: { type: `urn:ietf:params:acme:error:${type}`, detail, status },
});

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...problem(429, "rateLimited", "Too many requests."), headers: retryAfter(seconds) }),
  denied: () => problem(403, "unauthorized", "Not allowed."),
  firewalled: () => problem(403, "unauthorized", "Not allowed."),
  failed: (status) => problem(status, "serverInternal", "The authority failed."),
};
