import { TextField } from "./fields.tsx";
import { fieldText } from "./form-dialog.tsx";

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
