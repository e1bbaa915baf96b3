/** The views, in the order of the navigation. A view's code is loaded when the view is first opened. */
import {
  AlertRegular,
  ArrowSyncRegular,
  BotRegular,
  BranchForkRegular,
  CertificateRegular,
  ClipboardTextLtrRegular,
  CodeRegular,
  CopyRegular,
  type FluentIcon,
  HistoryRegular,
  HomeRegular,
  KeyMultipleRegular,
  KeyRegular,
  PeopleCommunityRegular,
  PersonKeyRegular,
  PlugConnectedRegular,
  SettingsRegular,
  ShieldCheckmarkRegular,
  ShieldKeyholeRegular,
  VaultRegular,
} from "@fluentui/react-icons";
import type { ComponentType } from "react";
import type { Operation } from "../api/access.ts";

/** The groups of the navigation. */
export const GROUPS = ["Monitor", "Automate", "Govern", "Administer"] as const;

export interface View {
  /** The path in the URL fragment. */
  path: string;
  /** The label in the navigation. A view without a title is reached through a link in another view. */
  title?: string;
  /** The operation that a role must be able to call to open the view. */
  needs: Operation;
  /** The group and the icon in the navigation, for a view with a title. */
  group?: (typeof GROUPS)[number];
  icon?: FluentIcon;
  /** The name of the view in the breadcrumbs, for a view without a title. */
  kind?: string;
  load(): Promise<{ default: ComponentType }>;
}

export const VIEWS: View[] = [
  {
    path: "/",
    title: "Overview",
    needs: "listAssets",
    group: "Monitor",
    icon: HomeRegular,
    load: () => import("./overview/overview.tsx"),
  },
  {
    path: "/inventory",
    title: "Inventory",
    needs: "listAssets",
    group: "Monitor",
    icon: KeyRegular,
    load: () => import("./inventory/inventory.tsx"),
  },
  {
    path: "/vaults",
    title: "Vaults",
    needs: "listVaults",
    group: "Monitor",
    icon: VaultRegular,
    load: () => import("./vaults/vaults.tsx"),
  },
  {
    path: "/b2c",
    title: "B2C tenants",
    needs: "listB2cTenants",
    group: "Monitor",
    icon: PeopleCommunityRegular,
    load: () => import("./b2c/b2c.tsx"),
  },
  {
    path: "/dependencies",
    title: "Dependencies",
    needs: "listDependencies",
    group: "Monitor",
    icon: BranchForkRegular,
    load: () => import("./dependencies/dependencies.tsx"),
  },
  {
    path: "/changes",
    title: "Changes",
    needs: "listAssetChanges",
    group: "Monitor",
    icon: HistoryRegular,
    load: () => import("./changes/changes.tsx"),
  },
  {
    path: "/alerts",
    title: "Alerts",
    needs: "listAlertHistory",
    group: "Monitor",
    icon: AlertRegular,
    load: () => import("./alerts/alerts.tsx"),
  },
  {
    path: "/credentials",
    title: "Credentials",
    needs: "listRotationCredentials",
    group: "Automate",
    icon: KeyMultipleRegular,
    load: () => import("./credentials/credentials.tsx"),
  },
  {
    path: "/rotation",
    title: "Rotation",
    needs: "listRotations",
    group: "Automate",
    icon: ArrowSyncRegular,
    load: () => import("./rotation/rotation.tsx"),
  },
  {
    path: "/sync",
    title: "Sync",
    needs: "listSyncRecords",
    group: "Automate",
    icon: CopyRegular,
    load: () => import("./sync/sync.tsx"),
  },
  {
    path: "/devops",
    title: "Azure DevOps",
    needs: "getDevopsSettings",
    group: "Automate",
    icon: CodeRegular,
    load: () => import("./devops/devops.tsx"),
  },
  {
    path: "/compliance",
    title: "Compliance",
    needs: "listViolations",
    group: "Govern",
    icon: ShieldCheckmarkRegular,
    load: () => import("./compliance/compliance.tsx"),
  },
  {
    path: "/proposals",
    title: "Proposals",
    needs: "listProposals",
    group: "Govern",
    icon: BotRegular,
    load: () => import("./proposals/proposals.tsx"),
  },
  {
    path: "/audit",
    title: "Audit log",
    needs: "listAuditEntries",
    group: "Govern",
    icon: ClipboardTextLtrRegular,
    load: () => import("./audit/audit.tsx"),
  },
  {
    path: "/access",
    title: "Access",
    needs: "listTokens",
    group: "Administer",
    icon: PersonKeyRegular,
    load: () => import("./people/people.tsx"),
  },
  {
    path: "/sso",
    title: "Single sign-on",
    needs: "getSsoConfiguration",
    group: "Administer",
    icon: PlugConnectedRegular,
    load: () => import("./sso/sso.tsx"),
  },
  {
    path: "/permissions",
    title: "Permissions",
    needs: "checkPermissions",
    group: "Administer",
    icon: ShieldKeyholeRegular,
    load: () => import("./permissions/permissions.tsx"),
  },
  {
    path: "/settings",
    title: "Settings",
    needs: "getAllSettings",
    group: "Administer",
    icon: SettingsRegular,
    load: () => import("./settings/settings.tsx"),
  },
  {
    path: "/license",
    title: "License",
    needs: "getLicenseStatus",
    group: "Administer",
    icon: CertificateRegular,
    load: () => import("./license/license.tsx"),
  },
  {
    path: "/compliance/readiness",
    needs: "listCertificateReadiness",
    kind: "Certificate readiness",
    load: () => import("./readiness/readiness.tsx"),
  },
  {
    path: "/compliance/post-quantum",
    needs: "listPostQuantum",
    kind: "Post-quantum readiness",
    load: () => import("./post-quantum/post-quantum.tsx"),
  },
  { path: "/inventory/:assetId", needs: "getAsset", kind: "Asset", load: () => import("./asset/asset.tsx") },
  {
    path: "/alerts/history/:entryId",
    needs: "getAlertHistoryEntry",
    kind: "Notification",
    load: () => import("./alerts/one-entry.tsx"),
  },
  {
    path: "/alerts/rules/:ruleId",
    needs: "getAlertRule",
    kind: "Alert rule",
    load: () => import("./alerts/one-rule.tsx"),
  },
  {
    path: "/credentials/:credentialId",
    needs: "getRotationCredential",
    kind: "Key of a resource",
    load: () => import("./credentials/one-credential.tsx"),
  },
  {
    path: "/rotation/:rotationId",
    needs: "getRotation",
    kind: "One rotation",
    load: () => import("./rotation/one-rotation.tsx"),
  },
  {
    path: "/rotation/apps/:appId",
    needs: "getApplication",
    kind: "Application",
    load: () => import("./rotation/one-application.tsx"),
  },
  {
    path: "/sync/:recordId",
    needs: "getSyncRecord",
    kind: "Sync of a secret",
    load: () => import("./sync/one-record.tsx"),
  },
  {
    path: "/dependencies/:assetId",
    needs: "getBlastRadius",
    kind: "Blast radius",
    load: () => import("./dependencies/blast-radius.tsx"),
  },
  { path: "/b2c/:tenantId", needs: "getB2cTenant", kind: "Tenant", load: () => import("./b2c/one-tenant.tsx") },
];

/** Returns the navigation entry of an address: its own view, or the view it is below, such as Alerts for `/alerts/rules/1`. */
export const viewOf = (pathname: string): View | undefined =>
  VIEWS.find(({ path, title }) => title !== undefined && (pathname === path || pathname.startsWith(`${path}/`)));

/** Returns the title of the navigation entry of an address. Undefined for an unknown address. */
export const titleOf = (pathname: string): string | undefined => viewOf(pathname)?.title;

/** Returns the view without a navigation entry at an address, such as that of an alert rule for `/alerts/rules/1`. */
export function subviewOf(pathname: string): View | undefined {
  const segments = pathname.split("/");
  const matches = ({ path }: View) => {
    const pattern = path.split("/");
    return (
      pattern.length === segments.length &&
      pattern.every((part, index) => part.startsWith(":") || part === segments[index])
    );
  };
  return VIEWS.find((view) => view.title === undefined && matches(view));
}
