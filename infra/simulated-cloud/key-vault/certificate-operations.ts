// Operations of the simulated Key Vault that create versions of certificates: create, pending operation, cancel, delete, merge.
// https://learn.microsoft.com/rest/api/keyvault/certificates and
// https://learn.microsoft.com/azure/key-vault/certificates/create-certificate

import { generateKeyPairSync, randomBytes, randomUUID, X509Certificate } from "node:crypto";
import { jsonObject, type ServiceResponse } from "../http.ts";
import { type Certificate, type CertificatePolicyJson, type CertificateVersion, current } from "../vaults/items.ts";
import type { CertificateOperation, Vault } from "../vaults/vault.ts";
import { makeCertificate, makeSigningRequest, readSigningRequest } from "../x509.ts";
import { badParameter, missing } from "./errors.ts";
import type { KeyVaultJson } from "./json.ts";
import type { VaultCall } from "./request-context.ts";
import type { Route } from "./route.ts";

const NAME = /^[0-9a-zA-Z-]{1,127}$/;
const KEY_SIZES = [2048, 3072, 4096];
const CURVES: Record<string, string> = { "P-256": "P-256", "P-384": "P-384", "P-521": "P-521" };
/** Authorities that vaults of the company are connected to. */
const INTEGRATED = ["DigiCert", "GlobalSign"];
const MONTH_SECONDS = 30.436875 * 86_400;

/** Returns the route of a request that creates a certificate or concerns such an operation. Undefined for other requests. */
export function certificateOperationRoute(method: string, segments: readonly string[]): Route | undefined {
  const [root, name, second, third, ...more] = segments;
  if (root !== "certificates" || name === undefined || more.length > 0) return undefined;
  const route = (operation: string, action: string, answer: Route["answer"]): Route => ({
    operation: `keyvault.${operation}`,
    permission: { kind: "certificates", action },
    name,
    answer,
  });
  if (second === "create" && third === undefined && method === "POST")
    return route("createCertificate", "create", createCertificate);
  if (second === "policy" && third === undefined && method === "PATCH")
    return route("updateCertificatePolicy", "update", updatePolicy);
  if (second !== "pending") return undefined;
  if (third === "merge" && method === "POST") return route("mergeCertificate", "create", mergeCertificate);
  if (third !== undefined) return undefined;
  if (method === "GET") return route("getCertificateOperation", "get", getOperation);
  if (method === "PATCH") return route("updateCertificateOperation", "update", updateOperation);
  if (method === "DELETE") return route("deleteCertificateOperation", "update", deleteOperation);
  return undefined;
}

/** Returns the certificate of an operation that creates its first version. */
export function pendingBundle(vault: Vault, json: KeyVaultJson, name: string): object {
  const operation = vault.certificateOperations.get(name.toLowerCase())!;
  const { policy } = operation.request;
  return {
    id: json.idOf(`certificates/${operation.name}`),
    attributes: { enabled: false, recoveryLevel: "Recoverable" },
    policy: { id: json.idOf(`certificates/${operation.name}/policy`), ...policy, attributes: { enabled: true } },
    pending: { id: json.idOf(`certificates/${operation.name}/pending`) },
  };
}

const operationOf = ({ vault, name }: VaultCall): CertificateOperation | undefined =>
  vault.certificateOperations.get(name.toLowerCase());

const noOperation = (name: string): ServiceResponse =>
  missing("PendingCertificateNotFound", `Pending certificate not found: ${name}`);

const conflict = (message: string): ServiceResponse => ({
  status: 409,
  body: { error: { code: "Conflict", message } },
});

function operationJson(json: KeyVaultJson, operation: CertificateOperation): object {
  const { name, request, status, cancellationRequested, csr, requestId } = operation;
  const id = json.idOf(`certificates/${name}`);
  return {
    id: `${id}/pending`,
    issuer: { name: request.policy.issuer?.name },
    csr: csr.toString("base64"),
    cancellation_requested: cancellationRequested,
    status,
    ...(status === "inProgress" && {
      status_details:
        "Pending certificate created. Certificate request is in progress. This may take some time based on the issuer provider. Please check again later",
    }),
    ...(status === "completed" && { target: id }),
    request_id: requestId,
  };
}

/** Starts the operation that creates a version. `Self` and integrated authorities issue at once, `Unknown` waits for a merge. */
function createCertificate(call: VaultCall): ServiceResponse {
  const { options, vault, json, request, name } = call;
  if (!NAME.test(name)) return badParameter(`The request URI contains an invalid name: ${name}`);
  if (operationOf(call)?.status === "inProgress")
    return conflict(
      "A new key vault certificate can not be created or imported while a pending key vault certificate's status is inProgress.",
    );
  const existing = vault.collections.certificates.get(name);
  const body = jsonObject(request) as { policy?: CertificatePolicyJson; tags?: Record<string, string> } | undefined;
  if (body === undefined) return badParameter("The request body is not a JSON object.");
  const policy = body.policy ?? (existing && (json.policy(existing) as CertificatePolicyJson));
  if (policy === undefined) return badParameter("Property policy is required.");
  const problem = policyProblem(policy);
  if (problem !== undefined) return badParameter(problem);
  const { publicKey, privateKey } = generateKeyPair(policy);
  const names = policy.x509_props?.sans?.dns_names ?? [];
  const subject = policy.x509_props?.subject || `CN=${names[0]}`;
  const csr = makeSigningRequest({ subject, dnsNames: names, publicKey, signingKey: privateKey });
  const operation: CertificateOperation = {
    name: existing?.name ?? name,
    requestId: randomUUID().replaceAll("-", ""),
    request: { policy, ...(body.tags && { tags: body.tags }) },
    status: "inProgress",
    cancellationRequested: false,
    csr,
    publicKey: publicKey.export({ type: "spki", format: "der" }),
  };
  vault.certificateOperations.set(name.toLowerCase(), operation);
  // The policy counts at once, also if the operation never completes.
  if (existing !== undefined) options.resources.putItem(vault.name, "certificates", { ...existing, policy });
  const issuer = policy.issuer!.name!;
  if (issuer !== "Unknown") {
    const now = options.resources.now();
    const months = policy.x509_props?.validity_months ?? 12;
    addVersion(call, operation, {
      der: makeCertificate({
        subject,
        issuer: issuer === "Self" ? subject : `CN=${issuer} CA`,
        serial: randomBytes(16),
        notBefore: new Date(now * 1000),
        notAfter: new Date((now + Math.round(months * MONTH_SECONDS)) * 1000),
        publicKey,
        signingKey: issuer === "Self" ? privateKey : options.certificates.signingKey,
        dnsNames: names,
        timestamps: issuer !== "Self",
      }),
    });
  }
  return { status: 202, body: operationJson(json, operation) };
}

/** Replaces the members of the policy that the body has. */
function updatePolicy({ options, vault, json, request, name }: VaultCall): ServiceResponse {
  const existing = vault.collections.certificates.get(name);
  if (existing === undefined)
    return missing("CertificateNotFound", `A certificate with (name/id) ${name} was not found in this key vault.`);
  const body = jsonObject(request) as CertificatePolicyJson | undefined;
  if (body === undefined) return badParameter("The request body is not a JSON object.");
  const policy = { ...(json.policy(existing) as CertificatePolicyJson), ...body };
  const problem = policyProblem(policy);
  if (problem !== undefined) return badParameter(problem);
  const updated = { ...existing, policy };
  options.resources.putItem(vault.name, "certificates", updated);
  return { status: 200, body: json.policy(updated) };
}

function policyProblem({ issuer, key_props: key = {}, x509_props: x509 = {} }: CertificatePolicyJson) {
  if (!issuer?.name) return "Property policy.issuer.name is required.";
  if (!["Self", "Unknown", ...INTEGRATED].includes(issuer.name))
    return `The certificate issuer ${issuer.name} was not found in this key vault.`;
  const { kty = "RSA", key_size: size = 2048, crv = "P-256" } = key;
  if (!["RSA", "EC"].includes(kty)) return `Property policy.key_props.kty has the invalid value ${kty}.`;
  if (kty === "RSA" && !KEY_SIZES.includes(size))
    return `Property policy.key_props.key_size has the invalid value ${size}.`;
  if (kty === "EC" && CURVES[crv] === undefined) return `Property policy.key_props.crv has the invalid value ${crv}.`;
  if (!x509.subject && !x509.sans?.dns_names?.length)
    return "Either Property policy.x509_props.subject or policy.x509_props.sans is required.";
  return undefined;
}

function generateKeyPair({
  key_props: { kty = "RSA", key_size: size = 2048, crv = "P-256" } = {},
}: CertificatePolicyJson) {
  return kty === "EC"
    ? generateKeyPairSync("ec", { namedCurve: CURVES[crv]! })
    : generateKeyPairSync("rsa", { modulusLength: size });
}

function getOperation(call: VaultCall): ServiceResponse {
  const operation = operationOf(call);
  if (operation === undefined) return noOperation(call.name);
  return { status: 200, body: operationJson(call.json, operation) };
}

function updateOperation(call: VaultCall): ServiceResponse {
  const operation = operationOf(call);
  if (operation === undefined) return noOperation(call.name);
  if (jsonObject(call.request)?.cancellation_requested !== true)
    return badParameter("Property cancellation_requested must be true.");
  operation.cancellationRequested = true;
  if (operation.status === "inProgress") operation.status = "cancelled";
  return { status: 200, body: operationJson(call.json, operation) };
}

function deleteOperation(call: VaultCall): ServiceResponse {
  const operation = operationOf(call);
  if (operation === undefined) return noOperation(call.name);
  call.vault.certificateOperations.delete(call.name.toLowerCase());
  return { status: 200, body: operationJson(call.json, operation) };
}

/** Completes an operation with the certificate that another authority issued for its signing request. */
function mergeCertificate(call: VaultCall): ServiceResponse {
  const { vault, json, request, name } = call;
  const operation = operationOf(call);
  if (operation === undefined) return noOperation(name);
  if (operation.status !== "inProgress")
    return conflict(`The pending certificate ${name} has the status ${operation.status}.`);
  const body = jsonObject(request) as { x5c?: unknown[]; tags?: Record<string, string> } | undefined;
  const leaf = body?.x5c?.[0];
  if (typeof leaf !== "string") return badParameter("Property x5c is required.");
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(Buffer.from(leaf, "base64"));
  } catch {
    return badParameter("Property x5c has an invalid X.509 certificate.");
  }
  if (!certificate.publicKey.export({ type: "spki", format: "der" }).equals(operation.publicKey))
    return badParameter("Public key from x509 certificate and key of this instance doesn't match");
  addVersion(call, operation, { der: certificate.raw, ...(body?.tags && { tags: body.tags }) });
  const item = vault.collections.certificates.get(name)!;
  return { status: 201, body: json.bundle("certificates", item.name, current(item).id) };
}

/** Adds the version and completes the operation. */
function addVersion(
  { options, vault }: VaultCall,
  operation: CertificateOperation,
  issued: { der: Buffer; tags?: Record<string, string> },
): void {
  const { policy } = operation.request;
  const existing = vault.collections.certificates.get(operation.name);
  const now = options.resources.now();
  const { validFromDate, validToDate } = new X509Certificate(issued.der);
  const signingRequest = readSigningRequest(operation.csr)!;
  const { kty = "RSA", key_size: size = 2048, crv = "P-256", exportable = true } = policy.key_props ?? {};
  const tags = issued.tags ?? operation.request.tags;
  const version: CertificateVersion = {
    id: randomBytes(16).toString("hex"),
    enabled: true,
    created: now,
    updated: now,
    notBefore: validFromDate.getTime() / 1000,
    expires: validToDate.getTime() / 1000,
    ...(tags && { tags }),
    subject: policy.x509_props?.subject || `CN=${signingRequest.commonName}`,
    dnsNames: signingRequest.dnsNames,
    issuer: policy.issuer!.name!,
    shape: kty === "EC" ? { type: "EC", curve: crv as "P-256" } : { type: "RSA", size },
    validityMonths: policy.x509_props?.validity_months ?? 12,
    der: issued.der.toString("base64"),
  };
  operation.status = "completed";
  options.resources.putItem(vault.name, "certificates", {
    name: operation.name,
    versions: [...(existing?.versions ?? []), version],
    renewal: renewalOf(policy) ?? existing?.renewal ?? { action: "EmailContacts", percentage: 80 },
    exportable,
    policy,
  } satisfies Certificate);
}

function renewalOf({ lifetime_actions: [first] = [] }: CertificatePolicyJson): Certificate["renewal"] | undefined {
  if (first?.action?.action_type === undefined) return undefined;
  const { lifetime_percentage: percentage, days_before_expiry: daysBeforeExpiry } = first.trigger ?? {};
  return {
    action: first.action.action_type === "AutoRenew" ? "AutoRenew" : "EmailContacts",
    ...(percentage !== undefined && { percentage }),
    ...(daysBeforeExpiry !== undefined && { daysBeforeExpiry }),
  };
}
