import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { People } from "simulated-cloud/idp/people.ts";
import { type SamlMode, type SamlRequest, samlResponse } from "simulated-cloud/idp/saml-response.ts";
import type { SamlKey } from "simulated-cloud/idp/saml-signature.ts";
import { makeCertificate, pem } from "simulated-cloud/x509.ts";
import type { ExpectedValues, VerifiedAssertion } from "../../../shared/sso/saml/assertion.ts";
import { verifyResponse } from "../../../shared/sso/saml/response.ts";
import { type SamlReason, SamlRefused } from "../../../shared/sso/saml/saml-refused.ts";

// An identity provider for tests of the verification of SAML responses: signs messages without a server.

/** The person in the signed responses. */
export const uma = new People().find("uma")!;

export const base64 = (xml: string): string => Buffer.from(xml).toString("base64");

/** Signs responses as an identity provider, with keys that each object generates. */
export class Signer {
  readonly entityId = "http://127.0.0.1:7075/saml/metadata";
  readonly now = new Date("2026-03-01T12:00:00Z");
  readonly request: SamlRequest = {
    id: "_7e57_7e57_7e57",
    issuer: "https://lifecycle.acme.example/auth/sso/metadata",
    acsUrl: "https://lifecycle.acme.example/auth/sso/callback",
  };
  readonly #key = makeKey();
  readonly #foreignKey = makeKey();

  get certificate(): string {
    return pem("CERTIFICATE", Buffer.from(this.#key.certificate, "base64"));
  }

  get foreignCertificate(): string {
    return pem("CERTIFICATE", Buffer.from(this.#foreignKey.certificate, "base64"));
  }

  /** Returns the XML of a response to `request`, with the defects that `mode` names. */
  async respond(mode: SamlMode = {}): Promise<string> {
    const key = mode.foreignKey ? this.#foreignKey : this.#key;
    const id = () => `_${randomBytes(16).toString("hex")}`;
    return await samlResponse(this.entityId, this.request, uma, key, { now: this.now, id, mode });
  }

  /** Returns the signature of a text by RSA with SHA-256, in Base64. */
  sign(text: string): string {
    const key = createPrivateKey({ key: { ...this.#key.privateKey }, format: "jwk" });
    return sign("sha256", Buffer.from(text), key).toString("base64");
  }

  /** Returns the values that a valid response of this provider must have, with changes by a test. */
  expected(change: Partial<ExpectedValues> = {}): ExpectedValues {
    return {
      idpEntityId: this.entityId,
      certificates: [this.certificate],
      acsUrl: this.request.acsUrl,
      spEntityId: this.request.issuer,
      requestId: this.request.id,
      now: this.now,
      ...change,
    };
  }
}

function makeKey(): SamlKey {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const names = { subject: "CN=idp", issuer: "CN=idp", serial: Buffer.from([1]) };
  const times = { notBefore: new Date("2026-01-01"), notAfter: new Date("2027-01-01") };
  const der = makeCertificate({ ...names, ...times, publicKey, signingKey: privateKey });
  return { privateKey: privateKey.export({ format: "jwk" }), certificate: der.toString("base64") };
}

/** Returns the person who signed in, or the reason of the rejection. Other errors are bugs of the service. */
export async function verificationResult(
  xml: string,
  expected: ExpectedValues,
): Promise<VerifiedAssertion | SamlReason> {
  try {
    return await verifyResponse(base64(xml), expected);
  } catch (error) {
    if (error instanceof SamlRefused) return error.reason;
    throw error;
  }
}
