/**
 * The endpoints that the project's REST API specification requires, by its sections. declarations.test.ts compares them with
 * the endpoints of the service, which has further ones.
 */
export const SPECIFICATION: Record<string, readonly string[]> = {
  "Authentication and health": [
    "POST /auth/login",
    "POST /auth/logout",
    "GET /auth/me",
    "GET /health",
    "GET /system/license/status",
    "GET /identity",
  ],
  Discovery: [
    "POST /api/assets/discovery/scan",
    "GET /api/assets/discovery/scan/{scan_id}/status",
    "GET /api/assets/discovery/scan/{scan_id}/results",
    "GET /api/assets/discovery/scans",
    "GET /api/assets/discovery/assets",
    "GET /api/assets/discovery/assets/{asset_id}",
    "GET /api/assets/discovery/vaults",
  ],
  Compliance: [
    "GET /compliance/score",
    "GET /compliance/violations",
    "POST /compliance/evaluate",
    "GET /compliance/frameworks",
    "GET /compliance/frameworks/{framework_id}",
  ],
  Alerts: [
    "GET /alerts/rules",
    "POST /alerts/rules",
    "PUT /alerts/rules/{rule_id}",
    "DELETE /alerts/rules/{rule_id}",
    "POST /alerts/rules/{rule_id}/test",
    "GET /alerts/history",
  ],
  Subscriptions: [
    "GET /subscriptions",
    "POST /subscriptions",
    "DELETE /subscriptions/{subscription_id}",
    "POST /subscriptions/{subscription_id}/test",
  ],
  Audit: ["GET /audit/entries", "GET /audit/export"],
  Rotation: [
    "POST /api/automation/rotation/discover",
    "GET /api/automation/rotation/apps",
    "GET /api/automation/rotation/apps/{app_id}/matches",
    "POST /api/automation/rotation/rotate",
    "GET /api/automation/rotation/history",
  ],
  Sync: [
    "GET /api/automation/sync/records",
    "POST /api/automation/sync/records",
    "POST /api/automation/sync/records/{record_id}/sync",
    "GET /api/automation/sync/records/{record_id}/status",
    "POST /api/automation/sync/providers/{provider}",
  ],
  Dependencies: [
    "GET /api/assets/dependencies",
    "GET /api/assets/dependencies/blast-radius/{secret_id}",
    "POST /api/assets/dependencies/rotate/{secret_id}",
  ],
  Settings: [
    "GET /api/settings/all",
    ...["performance", "features", "logging", "alert-defaults", "compliance-policy", "retention", "automation"].flatMap(
      (category) => [`GET /api/settings/${category}`, `PUT /api/settings/${category}`],
    ),
    "POST /api/settings/retention/purge",
    "POST /api/settings/retention/purge/{history_type}",
    "GET /api/settings/retention/stats",
    "DELETE /api/settings/{category}/{key}",
    "DELETE /api/settings/all",
  ],
  "DevOps integration": [
    "GET /api/settings/integrations/devops",
    "PUT /api/settings/integrations/devops",
    "POST /api/settings/integrations/devops/test",
    "PUT /api/settings/integrations/devops/projects",
  ],
  SSO: [
    "GET /auth/sso/status",
    "GET /auth/sso/config",
    "PUT /auth/sso/config",
    "POST /auth/sso/config/test",
    "DELETE /auth/sso/config",
    "POST /auth/sso/discover",
    "GET /auth/sso/login",
    "GET /auth/sso/callback",
  ],
  Users: [
    "GET /auth/users",
    "POST /auth/users",
    "PUT /auth/users/{user_id}",
    "DELETE /auth/users/{user_id}",
    "POST /auth/users/{user_id}/unlock",
  ],
  "B2C registry": [
    "GET /b2c/tenants",
    "POST /b2c/tenants",
    "POST /b2c/tenants/{tenant_id}/discover",
    "POST /b2c/tenants/{tenant_id}/test",
  ],
  "Documentation routes": ["GET /docs", "GET /redoc", "GET /openapi.json"],
};

/** Sections whose endpoints need the paid tier. */
export const PRO_SECTIONS = ["Rotation", "Sync", "Dependencies", "Users", "B2C registry"];
