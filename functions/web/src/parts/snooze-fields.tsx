import { TextField } from "./fields.tsx";
import { typed } from "./form-dialog.tsx";

/** Why something is silenced, and until when. */
export const SnoozeFields = () => (
  <>
    <TextField name="reason" label="Reason" required />
    <TextField name="until" label="Until the end of" type="date" required />
  </>
);

export const snoozeOf = (form: FormData) => ({ reason: typed(form, "reason"), until: typed(form, "until") });
