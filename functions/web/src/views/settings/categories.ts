import type { Operation } from "../../api/access.ts";
import type { Schemas } from "../../api/client.ts";

/**
 * The categories of settings in the order of the page. `member` is the category's name in the response with all settings,
 * `path` its segment in the paths of the API, and `change` the operation that changes its settings.
 */
export const CATEGORIES = [
  { member: "performance", path: "performance", change: "updatePerformanceSettings", title: "Performance" },
  { member: "features", path: "features", change: "updateFeaturesSettings", title: "Features" },
  { member: "logging", path: "logging", change: "updateLoggingSettings", title: "Logging" },
  { member: "alertDefaults", path: "alert-defaults", change: "updateAlertDefaultsSettings", title: "Alerts" },
  { member: "retention", path: "retention", change: "updateRetentionSettings", title: "Retention" },
  {
    member: "compliancePolicy",
    path: "compliance-policy",
    change: "updateCompliancePolicySettings",
    title: "Compliance",
  },
  { member: "automation", path: "automation", change: "updateAutomationSettings", title: "Automation" },
] as const satisfies {
  member: Exclude<keyof Schemas["AllSettings"], "licenseTier">;
  path: string;
  change: Operation;
  title: string;
}[];

export type Category = (typeof CATEGORIES)[number];
