import { TextField } from "./fields.tsx";
import { typed } from "./form-dialog.tsx";

/** The reason and end date of a snooze. */
export const SnoozeFields = () => (
  <>
    <TextField name="reason" label="Reason" required />
    <TextField name="until" label="Until (end of day)" type="date" required />
  </>
);

export const snoozeOf = (form: FormData) => ({ reason: typed(form, "reason"), until: typed(form, "until") });
