import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, NumberField } from "../../parts/fields.tsx";
import { chosen, typed } from "../../parts/form-dialog.tsx";

const ON_DRIFT = {
  overwrite: "Overwrite the target",
  report: "Report the difference",
} as const;

/** The fields of a sync record that can be edited. */
export function RecordFields({ record }: { record?: Schemas["SyncRecord"] }) {
  return (
    <>
      <NumberField
        name="scheduleHours"
        label="Check interval (hours)"
        hint="New versions sync immediately when Event Grid reports them"
        required
        min={1}
        max={720}
        defaultValue={String(record?.scheduleHours ?? 24)}
      />
      <ChoiceField
        name="onDrift"
        label="If the target was changed"
        options={ON_DRIFT}
        defaultValue={record?.onDrift ?? "overwrite"}
      />
      <CheckField name="adopt" label="Overwrite an existing target secret" defaultChecked={record?.adopt ?? false} />
      <CheckField name="enabled" label="Enabled" defaultChecked={record?.enabled ?? true} />
    </>
  );
}

export const recordOf = (form: FormData) => ({
  scheduleHours: Number(typed(form, "scheduleHours")),
  onDrift: chosen(form, "onDrift", ["overwrite", "report"]),
  adopt: form.has("adopt"),
  enabled: form.has("enabled"),
});
