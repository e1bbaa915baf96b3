import type { Schemas } from "../api/client.ts";
import { TextField } from "./fields.tsx";
import { fieldText } from "./form-dialog.tsx";

/** Types of alert rules about the expiry of an asset, which can be snoozed for one asset. */
const EXPIRY_TYPES: Schemas["AlertRule"]["alertType"][] = ["expiration", "expired", "credentialExpiry", "lateRenewal"];

/** Returns the alert rules about an expiry. */
export const expiryRulesOf = (rules: readonly Schemas["AlertRule"][]): Schemas["AlertRule"][] =>
  rules.filter(({ alertType }) => EXPIRY_TYPES.includes(alertType));

/** The form fields of a snooze, which pauses alerts until a date. */
export const SnoozeFields = () => (
  <>
    <TextField name="reason" label="Reason" hint="Example: Vault under maintenance" required />
    <TextField
      name="until"
      label="Until (end of day)"
      hint="Notifications start again after this day (UTC)."
      type="date"
      required
    />
  </>
);

/** Returns the body members that the fields contain. */
export const snoozeOf = (form: FormData) => ({ reason: fieldText(form, "reason"), until: fieldText(form, "until") });
