import { type KeyObject, X509Certificate } from "node:crypto";
import { DAY_MS } from "../time.ts";
import { type CallTarget, malformedAnswer } from "./failure.ts";

interface X509Facts {
  /** Distinguished names, such as `CN=www.example.com, O=Example`. */
  subject: string;
  issuer: string;
  /** Values only: `www.example.com`, `10.0.0.1`, `ops@example.com`. */
  subjectAlternativeNames: string[];
  validityMonths: number;
}

interface KeyFacts {
  keyType?: string;
  /** Key size in bits, for RSA keys. */
  keySize?: number;
}

/**
 * Reads the properties of an X.509 certificate.
 *
 * @param key - Whether to read the properties of the key, which takes most of the time.
 * @throws {CloudFailure} badResponse if the bytes are not an X.509 certificate in DER, or its key can't be read.
 */
export function readX509(der: Uint8Array, target: CallTarget, key: boolean): X509Facts & KeyFacts {
  let certificate: X509Certificate;
  let keyFacts: KeyFacts;
  try {
    certificate = new X509Certificate(der);
    keyFacts = key ? publicKeyFacts(certificate.publicKey) : {};
  } catch {
    throw malformedAnswer(target, "the certificate is not valid X.509");
  }
  return {
    subject: oneLine(certificate.subject),
    issuer: oneLine(certificate.issuer),
    subjectAlternativeNames: alternativeNames(certificate.subjectAltName),
    validityMonths: months(certificate.validFromDate, certificate.validToDate),
    ...keyFacts,
  };
}

const oneLine = (name: string | undefined) => (name ?? "").split("\n").join(", ");

/** Splits a text of Node such as `DNS:a.example, IP Address:10.0.0.1`. A value with a comma or quote is a JSON string there. */
function alternativeNames(text: string | undefined): string[] {
  const names = (text ?? "").matchAll(/(?:^|, )[\w ]+:("(?:[^"\\]|\\.)*"|[^,]*)/g);
  return [...names].map(([, value = ""]) => (value.startsWith('"') ? String(JSON.parse(value)) : value));
}

function months(from: Date, to: Date): number {
  const averageMonthMs = (365.2425 / 12) * DAY_MS;
  return Math.max(1, Math.round((to.getTime() - from.getTime()) / averageMonthMs));
}

/** `toLegacyObject` is not used, because it ends the process with a segmentation fault for P-256K (Node 24.21). */
function publicKeyFacts({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): KeyFacts {
  if (type === "ec") return { keyType: "EC" };
  if (type !== "rsa" && type !== "rsa-pss") return {};
  return { keyType: "RSA", ...(details?.modulusLength === undefined ? {} : { keySize: details.modulusLength }) };
}
