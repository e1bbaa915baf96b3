/** POST, PUT and DELETE endpoints that are not tested here, with the reason. */
export const UNTESTED_ENDPOINTS: Record<string, string> = {
  "POST /subscriptions/{subscription_id}/test": "reads only",
  "POST /system/permissions/check": "reads only",
  "POST /auth/sso/config/test": "reads only",
  "POST /api/settings/integrations/devops/test": "reads only",
  "POST /auth/sso/discover": "reads only",
  "POST /auth/me/second-factor/challenge": "reads only",
  "POST /auth/bootstrap/azure": "works once for a store, before anyone signed in: test/access/first-password.test.ts",
  "POST /auth/step-up":
    "needs a second factor, which a repeated request can't use again: test/access/confirmations.test.ts",
  ...Object.fromEntries(
    ["POST /approvals/{approval_id}/approve", "POST /approvals/{approval_id}/reject"].map((endpoint) => [
      endpoint,
      "needs two administrators and a setting: test/access/confirmations.test.ts",
    ]),
  ),
  ...Object.fromEntries(
    ["POST /mcp", "POST /api/proposals/{proposal_id}/approve", "POST /api/proposals/{proposal_id}/reject"].map(
      (endpoint) => [endpoint, "needs a token for programs or a session: test/mcp/proposals.test.ts"],
    ),
  ),
  "POST /auth/me/second-factor/passkeys": "writes only the use of a second factor, once",
  "POST /auth/me/second-factor/passkeys/confirm":
    "needs the answer of an authenticator: test/page/second-factor.test.ts",
  "POST /auth/me/second-factor/methods/{method_id}/remove":
    "needs a second factor, which a repeated request can't use again: test/access/second-factor.test.ts",
  "POST /auth/me/second-factor/recovery-codes":
    "needs a second factor, which a repeated request can't use again: test/access/second-factor.test.ts",
  "POST /api/automation/sync/records/{record_id}/plan": "reads only",
  "POST /b2c/tenants/test": "reads only",
  "POST /b2c/tenants/{tenant_id}/test": "reads only",
  "POST /api/assets/dependencies/endpoints/check": "stores only what it reads, and a repeat reads again",
  "PUT /api/automation/keys/{asset_id}/rotation-policy":
    "writes only to Key Vault, with fault tests of its own: test/key-rotation/policy.test.ts",
  "POST /audit/streams/{stream_id}/test": "writes no row, and sends an event that is marked as a test",
  "POST /alerts/preview": "reads only",
  "POST /alerts/rules/{rule_id}/preview": "reads only",
  ...Object.fromEntries(
    [
      "POST /api/automation/rotation/discover",
      "POST /api/automation/rotation/rotate",
      "POST /api/automation/rotation/credentials/discover",
      "POST /api/automation/rotation/credentials/{credential_id}/rotate",
      "POST /api/assets/dependencies/rotate/{secret_id}",
      "POST /api/automation/rotation/rotations/{rotation_id}/cancel",
      "POST /api/automation/rotation/rotations/{rotation_id}/retry",
      "POST /api/automation/rotation/rotations/{rotation_id}/finish",
      "POST /api/automation/keys/{asset_id}/rotate",
      "POST /api/automation/rotation/apps/{app_id}/secretless",
      "POST /api/automation/rotation/secretless/{run_id}/proof",
      "POST /api/automation/rotation/secretless/{run_id}/confirm",
      "POST /api/automation/rotation/secretless/{run_id}/retry",
      "POST /api/automation/rotation/secretless/{run_id}/rollback",
      "POST /api/automation/sync/records/{record_id}/sync",
      "POST /b2c/tenants/{tenant_id}/discover",
      "POST /api/assets/dependencies/discover",
    ].map((endpoint) => [endpoint, "starts work whose steps have fault tests of their own"]),
  ),
  "POST /auth/sso/callback": "needs a response that was signed for it: test/sso/saml/sign-in.test.ts",
  "POST /auth/sso/logout": "needs a logout token that was signed for it: test/sso/sign-out.test.ts",
  ...Object.fromEntries(
    ["POST /api/automation/rotation/credentials", "DELETE /api/automation/rotation/credentials/{credential_id}"].map(
      (endpoint) => [endpoint, "needs a database server: test/rotation/database-login-http.test.ts"],
    ),
  ),
  "POST /api/automation/certificates/authorities/test": "reads only",
  ...Object.fromEntries(
    [
      "POST /api/automation/certificates",
      "POST /api/automation/certificates/{asset_id}/renew",
      "POST /api/automation/certificates/renewals/{run_id}/cancel",
      "POST /api/automation/certificates/{asset_id}/revoke",
      "POST /api/automation/certificates/authorities",
      "PUT /api/automation/certificates/authorities/{authority_id}",
      "DELETE /api/automation/certificates/authorities/{authority_id}",
      "PUT /api/automation/certificates/{asset_id}/policy",
      "DELETE /api/automation/certificates/{asset_id}/policy",
    ].map((endpoint) => [endpoint, "needs a certificate authority: test/certificate-renewal"]),
  ),
  "POST /api/automation/rotation/discover": "has fault tests in test/applications/faults.test.ts",
  ...Object.fromEntries(
    ["features", "logging", "alert-defaults", "retention", "compliance-policy", "automation"].map((category) => [
      `PUT /api/settings/${category}`,
      "the same code as PUT /api/settings/performance",
    ]),
  ),
};
