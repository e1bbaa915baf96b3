import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { RecordFields, recordOf } from "./record-fields.tsx";
import { SERVICES } from "./targets.ts";

type Provider = Schemas["NewSyncRecord"]["targetProvider"];
const PROVIDERS = Object.keys(SERVICES) as Provider[];

/** A copy of a vault secret in another store, from now on. */
export const NewRecord = () => (
  <div>
    <Operate
      operation="createSyncRecord"
      title="New copy"
      action="Create"
      submit={(form, create) => {
        const targetProvider = chosen(form, "targetProvider", PROVIDERS);
        return create({
          body: {
            sourceVault: typed(form, "sourceVault"),
            sourceSecret: typed(form, "sourceSecret"),
            targetProvider,
            targetService: chosen(form, "targetService", SERVICES[targetProvider]),
            targetName: typed(form, "targetName"),
            ...given({ targetRegion: typed(form, "targetRegion") }),
            ...recordOf(form),
          },
        });
      }}
    >
      <Place />
      <RecordFields />
    </Operate>
  </div>
);

function Place() {
  const [provider, setProvider] = useState<Provider>("azure");
  return (
    <>
      <TextField name="sourceVault" label="Key vault" required />
      <TextField name="sourceSecret" label="Secret" required />
      <ChoiceField name="targetProvider" label="To" options={PROVIDERS} value={provider} choose={setProvider} />
      <ChoiceField key={provider} name="targetService" label="Kept in" options={SERVICES[provider]} />
      <TextField name="targetName" label="Name there" required />
      {provider === "aws" && (
        <TextField name="targetRegion" label="Region" hint="Empty: as the provider's settings say" />
      )}
      {provider === "azure" && <TextField name="targetRegion" label="Key vault there" required />}
    </>
  );
}
