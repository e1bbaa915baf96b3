import { expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";

// Every endpoint that changes something is either guarded, or here with the reason why no secret can leave by it. For a guarded
// endpoint, the settings can require a confirmation: a second factor, or the approval of another administrator (docs/approval.md).

const { endpoints } = await declarations();

/** Endpoints by which a secret can leave, or by which an administrator could get around a confirmation. */
const GUARDED = [
  "DELETE /api/settings/all",
  "DELETE /api/settings/{category}/{key}",
  "DELETE /audit/streams/{stream_id}",
  "DELETE /auth/sso/refused/{identity_id}",
  "DELETE /auth/users/{user_id}",
  "DELETE /auth/users/{user_id}/second-factor",
  "POST /api/assets/dependencies/rotate/{secret_id}",
  "POST /api/automation/certificates/{asset_id}/revoke",
  "POST /api/automation/rotation/apps/{app_id}/matches/confirm",
  "POST /api/automation/rotation/apps/{app_id}/secretless",
  "POST /api/automation/rotation/credentials",
  "POST /api/automation/rotation/credentials/{credential_id}/rotate",
  "POST /api/automation/rotation/rotate",
  "POST /api/automation/rotation/secretless/{run_id}/confirm",
  "POST /api/automation/sync/providers/{provider}",
  "POST /api/automation/sync/records",
  "POST /approvals/{approval_id}/approve",
  "POST /approvals/{approval_id}/reject",
  "POST /audit/streams",
  "POST /auth/tokens",
  "POST /auth/users",
  "PUT /api/automation/rotation/apps/{app_id}/policy",
  "PUT /api/automation/sync/records/{record_id}",
  "PUT /api/settings/features",
  "PUT /api/settings/integrations/devops",
  "PUT /api/settings/integrations/devops/copies",
  "PUT /audit/streams/{stream_id}",
  "PUT /auth/sso/config",
  "PUT /auth/users/{user_id}",
];

/** The other endpoints, by the reason why they are not guarded. */
const NOT_GUARDED: Record<string, string[]> = {
  "reads the inventory, or decides what it contains": [
    "POST /api/assets/dependencies/discover",
    "POST /api/assets/dependencies/endpoints",
    "POST /api/assets/dependencies/endpoints/check",
    "DELETE /api/assets/dependencies/endpoints",
    "POST /api/assets/discovery/scan",
    "DELETE /api/assets/discovery/scan/{scan_id}",
    "POST /api/automation/rotation/credentials/discover",
    "DELETE /api/automation/rotation/credentials/{credential_id}",
    "POST /api/automation/rotation/discover",
    "POST /api/automation/rotation/apps/{app_id}/matches/verify",
    "PUT /api/settings/integrations/devops/projects",
    "POST /compliance/evaluate",
    "POST /compliance/exemptions",
    "DELETE /compliance/exemptions/{exemption_id}",
    "POST /subscriptions",
    "DELETE /subscriptions/{subscription_id}",
    "POST /subscriptions/{subscription_id}/test",
    "POST /system/permissions/check",
  ],
  "adds a version to a key, whose private part never leaves Key Vault, or decides when Key Vault does so": [
    "POST /api/automation/keys/{asset_id}/rotate",
    "PUT /api/automation/keys/{asset_id}/rotation-policy",
  ],
  "orders or configures certificates, whose private keys never leave their vault": [
    "POST /api/automation/certificates",
    "POST /api/automation/certificates/{asset_id}/renew",
    "POST /api/automation/certificates/renewals/{run_id}/cancel",
    "PUT /api/automation/certificates/{asset_id}/policy",
    "DELETE /api/automation/certificates/{asset_id}/policy",
    "POST /api/automation/certificates/authorities",
    "POST /api/automation/certificates/authorities/test",
    "PUT /api/automation/certificates/authorities/{authority_id}",
    "DELETE /api/automation/certificates/authorities/{authority_id}",
  ],
  "sends names and dates, never the value of a secret": [
    "POST /alerts/rules",
    "PUT /alerts/rules/{rule_id}",
    "DELETE /alerts/rules/{rule_id}",
    "POST /alerts/rules/{rule_id}/test",
    "POST /alerts/rules/{rule_id}/rotate-secret",
    "POST /alerts/preview",
    "POST /alerts/rules/{rule_id}/preview",
    "POST /alerts/acknowledgements",
    "DELETE /alerts/acknowledgements/{acknowledgement_id}",
    "POST /alerts/history/{entry_id}/send",
    "POST /alerts/history/{entry_id}/drop",
    "POST /alerts/snoozes",
    "DELETE /alerts/snoozes/{snooze_id}",
    "PUT /alerts/owners",
  ],
  "sends the client secret in the request, or the saved one to Entra for the same application": [
    "POST /b2c/tenants",
    "POST /b2c/tenants/test",
    "PUT /b2c/tenants/{tenant_id}",
    "DELETE /b2c/tenants/{tenant_id}",
    "POST /b2c/tenants/{tenant_id}/test",
    "POST /b2c/tenants/{tenant_id}/discover",
  ],
  "repeats, ends or removes what was confirmed before": [
    "DELETE /api/automation/rotation/apps/{app_id}/policy",
    "POST /api/automation/rotation/rotations/{rotation_id}/cancel",
    "POST /api/automation/rotation/rotations/{rotation_id}/retry",
    "POST /api/automation/rotation/rotations/{rotation_id}/finish",
    "POST /api/automation/rotation/secretless/{run_id}/proof",
    "POST /api/automation/rotation/secretless/{run_id}/retry",
    "POST /api/automation/rotation/secretless/{run_id}/rollback",
    "DELETE /api/automation/sync/records/{record_id}",
    "POST /api/automation/sync/records/{record_id}/sync",
    "POST /api/automation/sync/records/{record_id}/plan",
    "DELETE /api/automation/sync/providers/{provider}",
    "POST /api/settings/integrations/devops/test",
    "POST /audit/streams/{stream_id}/test",
    "POST /audit/streams/{stream_id}/rotate-secret",
  ],
  "signs in or out, ends a session or token, unlocks a user, or asks for the user's own password": [
    "POST /auth/login",
    "POST /auth/bootstrap/azure",
    "POST /auth/logout",
    "POST /auth/password",
    "POST /auth/step-up",
    "DELETE /auth/sessions/{session_id}",
    "DELETE /auth/tokens/{token_id}",
    "POST /auth/me/second-factor/challenge",
    "POST /auth/me/second-factor/totp",
    "POST /auth/me/second-factor/totp/confirm",
    "POST /auth/me/second-factor/passkeys",
    "POST /auth/me/second-factor/passkeys/confirm",
    "POST /auth/me/second-factor/methods/{method_id}/remove",
    "POST /auth/me/second-factor/recovery-codes",
    "POST /auth/users/{user_id}/unlock",
  ],
  "calls endpoints of this list, with their own confirmations, or decides on such a call": [
    "POST /mcp",
    "POST /api/proposals/{proposal_id}/approve",
    "POST /api/proposals/{proposal_id}/reject",
  ],
  "turns single sign-on off, tests it, or serves it": [
    "DELETE /auth/sso/config",
    "POST /auth/sso/config/test",
    "POST /auth/sso/discover",
    "POST /auth/sso/callback",
    "POST /auth/sso/logout",
  ],
  "changes no setting that lets a secret leave": [
    ...["alert-defaults", "automation", "compliance-policy", "logging", "performance", "retention"].map(
      (category) => `PUT /api/settings/${category}`,
    ),
    "POST /api/settings/retention/purge",
    "POST /api/settings/retention/purge/{history_type}",
  ],
};

test("every endpoint that changes something is guarded, or named with the reason why not", () => {
  const changing = endpoints.filter(({ method }) => method !== "GET");
  const namesOf = (list: typeof changing) => list.map(({ method, route }) => `${method} /${route}`).sort();
  expect(namesOf(changing.filter(({ guarded }) => guarded))).toEqual(GUARDED);
  expect(namesOf(changing.filter(({ guarded }) => !guarded))).toEqual(Object.values(NOT_GUARDED).flat().sort());
});

test("no guarded endpoint is answered before the services are loaded, and none is open", () => {
  for (const { guarded, standalone, access } of endpoints.filter((endpoint) => endpoint.guarded))
    expect([typeof guarded, standalone ?? false, access === "open"]).toEqual(["function", false, false]);
});
