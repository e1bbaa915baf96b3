/** Labels, units and display texts of the settings. The API names a setting only by its key, which the page shows below the label. */
const LABELS: Record<string, { label: string; unit?: string; values?: Record<string, string> }> = {
  discoveryMaxWorkers: { label: "Vaults scanned in parallel", unit: "vaults" },
  discoveryScanTimeout: { label: "Scan timeout", unit: "seconds" },
  enableNotifications: { label: "Send alerts" },
  enableComplianceScanning: { label: "Evaluate compliance" },
  watchAll: { label: "Monitor all subscriptions" },
  requirePasswordChange: { label: "Require new users to change their password" },
  unusedPasswordDays: { label: "Lifetime of unused passwords", unit: "days" },
  requireSecondFactor: {
    label: "Second factor required for",
    values: { none: "nobody", administrators: "administrators", everyone: "everyone" },
  },
  requireStepUp: { label: "Require a fresh second factor for requests that can expose a secret" },
  requireApproval: { label: "Require approval of requests that can expose a secret" },
  logLevel: { label: "Log level" },
  defaultThresholdDays: { label: "Default alert threshold before expiry", unit: "days" },
  criticalExpiryDays: { label: "Critical expiry threshold", unit: "days" },
  warningExpiryDays: { label: "Warning expiry threshold", unit: "days" },
  unusedSecretDays: { label: "Unused secret threshold", unit: "days" },
  auditRetentionDays: { label: "Audit log and alert history retention", unit: "days" },
  rotationRetentionDays: { label: "Rotation and sync history retention", unit: "days" },
  scanRetentionDays: { label: "Scan history retention", unit: "days" },
  outOfScopeRetentionDays: { label: "Retention of assets that are no longer monitored", unit: "days" },
  rotationTriggerDays: { label: "Rotation lead time", unit: "days" },
  defaultValidityDays: { label: "Default validity of rotated secrets", unit: "days" },
};

/** Returns the label of a setting, or its key if it has none. */
export const labelOf = (key: string): string => LABELS[key]?.label ?? key;

/** Returns the unit of a number, such as "days". Empty for a setting that is not a number. */
export const unitOf = (key: string): string => LABELS[key]?.unit ?? "";

/** Returns a value as text: on or off, a number with its unit, or the display text of a choice. */
export function valueText(key: string, value: boolean | number | string): string {
  if (typeof value === "boolean") return value ? "On" : "Off";
  return typeof value === "number"
    ? `${value.toLocaleString()} ${unitOf(key)}`
    : (LABELS[key]?.values?.[value] ?? value);
}
