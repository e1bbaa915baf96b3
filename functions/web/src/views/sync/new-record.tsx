import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { RecordFields, recordOf } from "./record-fields.tsx";
import { PROVIDER_NAMES, SERVICES, serviceNames } from "./targets.ts";

type Provider = Schemas["NewSyncRecord"]["targetProvider"];
const PROVIDERS = Object.keys(SERVICES) as Provider[];

/** Creates a sync record: a copy of a vault secret in another store, kept up to date. */
export const NewRecord = () => (
  <div>
    <Operate
      operation="createSyncRecord"
      title="Create sync"
      action="Create sync"
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
      <TextField name="sourceVault" label="Source key vault" required />
      <TextField name="sourceSecret" label="Source secret" required />
      <ChoiceField
        name="targetProvider"
        label="Target"
        options={PROVIDER_NAMES}
        value={provider}
        choose={setProvider}
      />
      <ChoiceField key={provider} name="targetService" label="Target service" options={serviceNames(provider)} />
      <TextField name="targetName" label="Target name" required />
      {provider === "aws" && (
        <TextField name="targetRegion" label="Region" hint="Leave empty to use the provider's region" />
      )}
      {provider === "azure" && <TextField name="targetRegion" label="Target key vault" required />}
    </>
  );
}
