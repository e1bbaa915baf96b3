import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, NumberField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText } from "../../parts/form-dialog.tsx";

/** Reactions of a sync to drift: another client changed the copy. */
const ON_DRIFT = {
  overwrite: "Overwrite it with the source value",
  report: "Only report the difference",
} as const;

/** The fields of a sync record that can be edited, in the forms that create and edit one. */
export function RecordFields({ record }: { record?: Schemas["SyncRecord"] }) {
  return (
    <>
      <NumberField
        name="scheduleHours"
        label="Check interval (hours)"
        hint="How often the copy is compared with the source. Example: 24. A new version is copied at once if Event Grid reports it."
        required
        min={1}
        max={720}
        defaultValue={String(record?.scheduleHours ?? 24)}
      />
      <ChoiceField
        name="onDrift"
        label="If someone changes the target value"
        options={ON_DRIFT}
        defaultValue={record?.onDrift ?? "overwrite"}
      />
      <CheckField
        name="adopt"
        label="Overwrite the target secret even if this sync didn't create it"
        hint="If off, the sync fails when another user or program created that secret."
        defaultChecked={record?.adopt ?? false}
      />
      <CheckField
        name="enabled"
        label="Enable sync"
        hint="If off, nothing is compared or copied until you enable the sync."
        defaultChecked={record?.enabled ?? true}
      />
    </>
  );
}

/** Returns the body members that the fields contain. */
export const recordOf = (form: FormData) => ({
  scheduleHours: Number(fieldText(form, "scheduleHours")),
  onDrift: fieldChoice(form, "onDrift", ["overwrite", "report"]),
  adopt: form.has("adopt"),
  enabled: form.has("enabled"),
});
