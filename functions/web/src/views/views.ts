/** The views, in the order of the navigation. A view's code is loaded when the view is first opened. */
import type { ComponentType } from "react";
import type { Operation } from "../api/access.ts";

export interface View {
  /** The path in the URL fragment. */
  path: string;
  /** The label in the navigation. A view without a title is reached through a link in another view. */
  title?: string;
  /** The operation that a role must be able to call to open the view. */
  needs: Operation;
  load(): Promise<{ default: ComponentType }>;
}

export const VIEWS: View[] = [
  { path: "/", title: "Overview", needs: "listAssets", load: () => import("./overview/overview.tsx") },
  { path: "/inventory", title: "Inventory", needs: "listAssets", load: () => import("./inventory/inventory.tsx") },
  { path: "/vaults", title: "Vaults", needs: "listVaults", load: () => import("./vaults/vaults.tsx") },
  {
    path: "/compliance",
    title: "Compliance",
    needs: "listViolations",
    load: () => import("./compliance/compliance.tsx"),
  },
  {
    path: "/compliance/readiness",
    needs: "listCertificateReadiness",
    load: () => import("./readiness/readiness.tsx"),
  },
  { path: "/alerts", title: "Alerts", needs: "listAlertHistory", load: () => import("./alerts/alerts.tsx") },
  { path: "/alerts/history/:entryId", needs: "getAlertHistoryEntry", load: () => import("./alerts/one-entry.tsx") },
  { path: "/alerts/rules/:ruleId", needs: "getAlertRule", load: () => import("./alerts/one-rule.tsx") },
  { path: "/audit", title: "Audit log", needs: "listAuditEntries", load: () => import("./audit/audit.tsx") },
  { path: "/rotation", title: "Rotation", needs: "listRotations", load: () => import("./rotation/rotation.tsx") },
  { path: "/rotation/:rotationId", needs: "getRotation", load: () => import("./rotation/one-rotation.tsx") },
  { path: "/rotation/apps/:appId", needs: "getApplication", load: () => import("./rotation/one-application.tsx") },
  { path: "/sync", title: "Sync", needs: "listSyncRecords", load: () => import("./sync/sync.tsx") },
  { path: "/sync/:recordId", needs: "getSyncRecord", load: () => import("./sync/one-record.tsx") },
  {
    path: "/dependencies",
    title: "Dependencies",
    needs: "listDependencies",
    load: () => import("./dependencies/dependencies.tsx"),
  },
  { path: "/dependencies/:assetId", needs: "getBlastRadius", load: () => import("./dependencies/blast-radius.tsx") },
  { path: "/b2c", title: "B2C tenants", needs: "listB2cTenants", load: () => import("./b2c/b2c.tsx") },
  { path: "/b2c/:tenantId", needs: "getB2cTenant", load: () => import("./b2c/one-tenant.tsx") },
  { path: "/devops", title: "Azure DevOps", needs: "getDevopsSettings", load: () => import("./devops/devops.tsx") },
  { path: "/access", title: "Access", needs: "listTokens", load: () => import("./people/people.tsx") },
  { path: "/sso", title: "Single sign-on", needs: "getSsoConfiguration", load: () => import("./sso/sso.tsx") },
  {
    path: "/permissions",
    title: "Permissions",
    needs: "checkPermissions",
    load: () => import("./permissions/permissions.tsx"),
  },
  { path: "/settings", title: "Settings", needs: "getAllSettings", load: () => import("./settings/settings.tsx") },
  { path: "/license", title: "License", needs: "getLicenseStatus", load: () => import("./license/license.tsx") },
  { path: "/inventory/:assetId", needs: "getAsset", load: () => import("./asset/asset.tsx") },
];

/** Returns the navigation entry of an address: its own view, or the view it is below, such as Alerts for `/alerts/rules/1`. */
export const viewOf = (pathname: string): View | undefined =>
  VIEWS.filter(({ path, title }) => title !== undefined && (pathname === path || pathname.startsWith(`${path}/`))).at(
    -1,
  );

/** Returns the title of that entry. Undefined for an unknown address. */
export const titleOf = (pathname: string): string | undefined => viewOf(pathname)?.title;
