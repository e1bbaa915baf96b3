import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, NumberField } from "../../parts/fields.tsx";
import { chosen, typed } from "../../parts/form-dialog.tsx";

const ON_DRIFT = {
  overwrite: "is mended",
  report: "is told of",
} as const;

/** What can be changed of a copy. */
export function RecordFields({ record }: { record?: Schemas["SyncRecord"] }) {
  return (
    <>
      <NumberField
        name="scheduleHours"
        label="Looked at every so many hours"
        hint="A new version is copied as soon as it is heard of."
        required
        min={1}
        max={720}
        defaultValue={String(record?.scheduleHours ?? 24)}
      />
      <ChoiceField
        name="onDrift"
        label="What somebody else changes there"
        options={ON_DRIFT}
        defaultValue={record?.onDrift ?? "overwrite"}
      />
      <CheckField
        name="adopt"
        label="Take over a secret that is there already: its value is overwritten"
        defaultChecked={record?.adopt ?? false}
      />
      <CheckField name="enabled" label="Switched on" defaultChecked={record?.enabled ?? true} />
    </>
  );
}

export const recordOf = (form: FormData) => ({
  scheduleHours: Number(typed(form, "scheduleHours")),
  onDrift: chosen(form, "onDrift", ["overwrite", "report"]),
  adopt: form.has("adopt"),
  enabled: form.has("enabled"),
});
