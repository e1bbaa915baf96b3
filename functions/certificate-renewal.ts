import {
  AuthorityChangeBody,
  AuthorityParams,
  AuthorityTest,
  AuthorityTestRequest,
  authorityChangeOf,
  authorityTestView,
  authorityView,
  CertificateAuthorities,
  CertificateAuthority,
  CertificateParams,
  CertificateRenewal,
  CertificateRenewals,
  EXAMPLE_AUTHORITY,
  EXAMPLE_CERTIFICATE,
  IssueBody,
  issueRequestOf,
  policyChangeOf,
  RenewalParams,
  RenewalPolicy,
  RenewalPolicyChange,
  RenewalQuery,
  RenewBody,
  RevokeBody,
  RevokedCertificate,
  renewalPlanView,
  renewalPolicyView,
  renewalView,
  revokeRequestOf,
} from "../shared/certificate-renewal/api.ts";
import { QUEUE, RenewalMessage } from "../shared/certificate-renewal/renewal.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";

/* Certificate authorities, and renewals of certificates: over ACME, or by the policy of the key vault. */

const tag = "Certificates";
const base = "api/automation/certificates";
const EXAMPLE_BODY = {
  name: "Let's Encrypt",
  directoryUrl: "https://acme-v02.api.letsencrypt.org/directory",
  contacts: ["pki@acme.example"],
};

const listCertificateAuthorities = endpoint({
  name: "listCertificateAuthorities",
  method: "GET",
  route: `${base}/authorities`,
  summary: "List certificate authorities",
  tag,
  access: "user",
  tier: "pro",
  responds: { 200: CertificateAuthorities },
  handle: async ({ services }) =>
    ok({ items: (await services.certificateAuthorities.all()).map((row) => authorityView(row)) }),
});

const addCertificateAuthority = endpoint({
  name: "addCertificateAuthority",
  method: "POST",
  route: `${base}/authorities`,
  summary: "Add a certificate authority",
  description:
    "Reads the ACME directory, registers an account with a new key, and agrees to the terms of service. The keys of the account and of the binding are stored in the service's own key vault and are never returned. Returns 400 for a directory at a private address that PRIVATE_TARGET_HOSTS does not name.",
  tag,
  access: "admin",
  tier: "pro",
  body: AuthorityChangeBody,
  example: { body: EXAMPLE_BODY },
  responds: { 201: CertificateAuthority },
  problems: ["conflict", "unavailable"],
  repeat: {
    idOf: ({ authorityId }) => authorityId,
    answer: async ({ id, services }) => authorityView(await services.certificateAuthorities.get(id)),
  },
  handle: async ({ body, caller, services }) => {
    const row = await services.certificateAuthorities.add(authorityChangeOf(body), caller);
    return created(authorityView(row), `/${base}/authorities/${row.authorityId}`);
  },
});

const testCertificateAuthority = endpoint({
  name: "testCertificateAuthority",
  method: "POST",
  route: `${base}/authorities/test`,
  summary: "Test a certificate authority without saving it",
  description: "Reads the ACME directory and a nonce. Registers no account, so the binding itself is not tested.",
  tag,
  access: "admin",
  tier: "pro",
  body: AuthorityTestRequest,
  example: { body: { directoryUrl: EXAMPLE_BODY.directoryUrl } },
  responds: { 200: AuthorityTest },
  harmlessRepeat: true,
  problems: ["conflict", "unavailable"],
  handle: async ({ body, services }) => ok(authorityTestView(await services.certificateAuthorities.test(body))),
});

const getCertificateAuthority = endpoint({
  name: "getCertificateAuthority",
  method: "GET",
  route: `${base}/authorities/{authority_id}`,
  summary: "Get a certificate authority",
  tag,
  access: "user",
  tier: "pro",
  params: AuthorityParams,
  example: { params: { authority_id: EXAMPLE_AUTHORITY } },
  responds: { 200: CertificateAuthority },
  handle: async ({ params, services }) =>
    resource(authorityView(await services.certificateAuthorities.get(params.authority_id))),
});

const replaceCertificateAuthority = endpoint({
  name: "replaceCertificateAuthority",
  method: "PUT",
  route: `${base}/authorities/{authority_id}`,
  summary: "Replace a certificate authority",
  description:
    "Replaces all members; omitted members get their default, but an omitted binding is unchanged. Another directory, or a new binding, gets a new account. Certificates of the earlier account can then no longer be revoked here.",
  tag,
  access: "admin",
  tier: "pro",
  params: AuthorityParams,
  body: AuthorityChangeBody,
  conditional: true,
  example: { params: { authority_id: EXAMPLE_AUTHORITY }, body: EXAMPLE_BODY },
  responds: { 200: CertificateAuthority },
  problems: ["conflict", "unavailable"],
  handle: async ({ params, body, ifMatch, caller, services }) => {
    const change = authorityChangeOf(body);
    return resource(
      authorityView(await services.certificateAuthorities.replace(params.authority_id, change, ifMatch, caller)),
    );
  },
});

const deleteCertificateAuthority = endpoint({
  name: "deleteCertificateAuthority",
  method: "DELETE",
  route: `${base}/authorities/{authority_id}`,
  summary: "Delete a certificate authority",
  description:
    "Deletes the key of the account too, so that its certificates can no longer be revoked here. Returns 409 while a renewal policy names the authority.",
  tag,
  access: "admin",
  tier: "pro",
  params: AuthorityParams,
  example: { params: { authority_id: EXAMPLE_AUTHORITY } },
  responds: { 200: Deleted },
  problems: ["conflict"],
  handle: async ({ params, caller, services }) => {
    await services.certificateAuthorities.remove(params.authority_id, caller);
    return deleted();
  },
});

/** A repeat with the same Idempotency-Key returns the renewal as it is then. A plan has no ID, so its repeat plans again. */
const repeat = {
  idOf: ({ runId }: { runId: string | null }) => runId,
  answer: async ({ id, services }: { id: string; services: import("./services.ts").Services }) =>
    renewalView(await services.certificateRenewals.get(id)),
};
const RENEWAL_PROBLEMS = ["notFound", "conflict", "serviceVault", "unavailable"] as const;

const issueCertificate = endpoint({
  name: "issueCertificate",
  method: "POST",
  route: base,
  summary: "Issue a certificate into a key vault",
  description:
    "The private key is made in the vault and never leaves it. The service proves the names to the authority by TXT records in the DNS zones of ACME_DNS_ZONE_IDS, aliases (CNAME) included. Runs in the background; follow it with GET /api/automation/certificates/renewals/{run_id}. With dryRun: true the answer is a plan, and `missing` lists what keeps it from starting.",
  tag,
  access: "admin",
  tier: "pro",
  body: IssueBody,
  example: {
    body: {
      vaultName: "kv-payments-prod",
      name: "www",
      dnsNames: ["www.acme.example"],
      authorityId: EXAMPLE_AUTHORITY,
      dryRun: true,
    },
  },
  responds: { 200: CertificateRenewal, 201: CertificateRenewal },
  problems: [...RENEWAL_PROBLEMS, "alreadyExists"],
  repeat,
  handle: async ({ body, caller, services }) => {
    const plan = await services.certificateRenewals.planIssue(issueRequestOf(body), caller);
    if (body.dryRun) return ok(renewalPlanView(plan));
    const record = await services.certificateRenewals.start(plan, caller);
    return created(renewalView(record), `/${base}/renewals/${record.runId}`);
  },
});

const renewCertificate = endpoint({
  name: "renewCertificate",
  method: "POST",
  route: `${base}/{asset_id}/renew`,
  summary: "Renew a certificate",
  description:
    "Creates a new version with the same DNS names: by the authority of the certificate's renewal policy, or by the policy of the vault (self-signed, or an authority that is connected to the vault). Only one renewal of a certificate can run at a time (409). A failed renewal leaves the current version as it is. With dryRun: true the answer is a plan, and `missing` lists what keeps it from starting.",
  tag,
  access: "admin",
  tier: "pro",
  params: CertificateParams,
  body: RenewBody,
  bodyOptional: true,
  example: { params: { asset_id: EXAMPLE_CERTIFICATE }, body: { dryRun: true } },
  responds: { 200: CertificateRenewal, 201: CertificateRenewal },
  problems: RENEWAL_PROBLEMS,
  repeat,
  handle: async ({ params, body, caller, services }) => {
    const plan = await services.certificateRenewals.planRenewal(params.asset_id, caller);
    if (body.dryRun) return ok(renewalPlanView(plan));
    const record = await services.certificateRenewals.start(plan, caller);
    return created(renewalView(record), `/${base}/renewals/${record.runId}`);
  },
});

const revokeCertificate = endpoint({
  name: "revokeCertificate",
  method: "POST",
  route: `${base}/{asset_id}/revoke`,
  summary: "Revoke a version of a certificate",
  description:
    "Asks the authority to revoke this version only, which can't be undone. Only the account that ordered it can revoke it. The version stays in the vault: to replace it, renew the certificate, wait until the new version is served, and then revoke the earlier one (`previousVersion` of the renewal).",
  tag,
  access: "admin",
  tier: "pro",
  params: CertificateParams,
  body: RevokeBody,
  guarded: () => true,
  responds: { 200: RevokedCertificate },
  // The second revocation finds the certificate revoked.
  harmlessRepeat: true,
  problems: RENEWAL_PROBLEMS,
  handle: async ({ params, body, caller, services }) => {
    const revoked = await services.certificateRenewals.revoke(params.asset_id, revokeRequestOf(body), caller);
    return ok({ revoked: true as const, ...revoked });
  },
});

const listCertificateRenewals = endpoint({
  name: "listCertificateRenewals",
  method: "GET",
  route: `${base}/renewals`,
  summary: "List renewals of certificates",
  description: "Newest first. Ended renewals are deleted after `rotationRetentionDays`.",
  tag,
  access: "user",
  tier: "pro",
  query: RenewalQuery,
  example: { query: { limit: "10" } },
  responds: { 200: CertificateRenewals },
  handle: async ({ query, services }) => {
    const { assetId, ...page } = query;
    return ok(pageView(await services.certificateRenewals.list(assetId, pageRequest(page)), renewalView));
  },
});

const getCertificateRenewal = endpoint({
  name: "getCertificateRenewal",
  method: "GET",
  route: `${base}/renewals/{run_id}`,
  summary: "Get a renewal with its steps",
  tag,
  access: "user",
  tier: "pro",
  params: RenewalParams,
  responds: { 200: CertificateRenewal },
  handle: async ({ params, services }) => ok(renewalView(await services.certificateRenewals.get(params.run_id))),
});

const cancelCertificateRenewal = endpoint({
  name: "cancelCertificateRenewal",
  method: "POST",
  route: `${base}/renewals/{run_id}/cancel`,
  summary: "Cancel a renewal",
  description:
    "The renewal then removes its records and its operation, and ends as failed. Returns 409 once the vault has the new version, and 503 while a step is running: try again.",
  tag,
  access: "admin",
  tier: "pro",
  params: RenewalParams,
  responds: { 200: CertificateRenewal },
  // A cancelled renewal is returned as it is.
  harmlessRepeat: true,
  problems: ["conflict", "unavailable"],
  handle: async ({ params, caller, services }) =>
    ok(renewalView(await services.certificateRenewals.cancel(params.run_id, caller))),
});

const getCertificateRenewalPolicy = endpoint({
  name: "getCertificateRenewalPolicy",
  method: "GET",
  route: `${base}/{asset_id}/policy`,
  summary: "Get the renewal policy of a certificate",
  tag,
  access: "user",
  tier: "pro",
  params: CertificateParams,
  example: { params: { asset_id: EXAMPLE_CERTIFICATE } },
  responds: { 200: RenewalPolicy },
  handle: async ({ params, services }) =>
    resource(renewalPolicyView(await services.certificateRenewals.policyOf(params.asset_id))),
});

const setCertificateRenewalPolicy = endpoint({
  name: "setCertificateRenewalPolicy",
  method: "PUT",
  route: `${base}/{asset_id}/policy`,
  summary: "Set the renewal policy of a certificate",
  description:
    "Replaces the policy; omitted members get their default. With `automatic`, the service renews the certificate at a random time in its window, within the budget of the authority.",
  tag,
  access: "admin",
  tier: "pro",
  params: CertificateParams,
  body: RenewalPolicyChange,
  conditional: true,
  example: { params: { asset_id: EXAMPLE_CERTIFICATE }, body: { authorityId: EXAMPLE_AUTHORITY, automatic: true } },
  responds: { 200: RenewalPolicy },
  problems: ["serviceVault", "conflict"],
  handle: async ({ params, body, ifMatch, caller, services }) => {
    const change = policyChangeOf(body);
    return resource(
      renewalPolicyView(await services.certificateRenewals.setPolicy(params.asset_id, change, ifMatch, caller)),
    );
  },
});

const deleteCertificateRenewalPolicy = endpoint({
  name: "deleteCertificateRenewalPolicy",
  method: "DELETE",
  route: `${base}/{asset_id}/policy`,
  summary: "Delete the renewal policy of a certificate",
  description: "A renewal that is in progress continues.",
  tag,
  access: "admin",
  tier: "pro",
  params: CertificateParams,
  example: { params: { asset_id: EXAMPLE_CERTIFICATE } },
  responds: { 200: Deleted },
  handle: async ({ params, caller, services }) => {
    await services.certificateRenewals.removePolicy(params.asset_id, caller);
    return deleted();
  },
});

export const endpoints = [
  listCertificateAuthorities,
  addCertificateAuthority,
  testCertificateAuthority,
  getCertificateAuthority,
  replaceCertificateAuthority,
  deleteCertificateAuthority,
  issueCertificate,
  renewCertificate,
  revokeCertificate,
  listCertificateRenewals,
  getCertificateRenewal,
  cancelCertificateRenewal,
  getCertificateRenewalPolicy,
  setCertificateRenewalPolicy,
  deleteCertificateRenewalPolicy,
];

export const timers = [
  timer({
    name: "runCertificateRenewals",
    schedule: { setting: "CERTIFICATE_RENEWAL_SCHEDULE" },
    handle: ({ services, requestId }) => services.certificateRenewals.runSchedule(requestId),
  }),
];

export const queues = [
  queue({
    name: "continueCertificateRenewal",
    queue: QUEUE,
    message: RenewalMessage,
    handle: (message, { services, requestId }) => services.certificateRenewals.handle(message, requestId),
  }),
  poison({
    name: "certificateRenewalFailed",
    of: QUEUE,
    message: RenewalMessage,
    // The next run of the timer continues the renewal.
  }),
];
