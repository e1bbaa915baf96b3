import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { CheckField, NumberField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { RotationPlan } from "../../parts/rotation-plan.tsx";

interface Props {
  application: Schemas["Application"];
  credential: Schemas["ApplicationCredential"];
}

/** Replaces one client secret of an application, once its plan was looked at. */
export function Rotate({ application: { appId, displayName }, credential: { keyId, displayName: name } }: Props) {
  const bodyOf = (form: FormData, dryRun: boolean) => ({
    body: {
      appId,
      secretId: keyId,
      ...given({ expiryDays: Number(typed(form, "expiryDays")) || null }),
      overlapDays: Number(typed(form, "overlapDays")),
      updateKeyVaults: form.has("updateKeyVaults"),
      removeExpired: form.has("removeExpired"),
      restartApps: form.has("restartApps"),
      skipVerification: form.has("skipVerification"),
      dryRun,
    },
  });
  return (
    <Operate
      operation="rotateSecret"
      title="Rotate"
      about={`${isolated(name ?? keyId)} of ${isolated(displayName)}`}
      action="Rotate"
      appearance="transparent"
      preview={{
        action: "Show the plan",
        first: true,
        load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
      }}
      submit={async (form, rotate) => {
        const { rotationId } = await rotate(bodyOf(form, false));
        return <Link href={createHref(`/rotation/${rotationId}`, {})}>It has begun: see its steps</Link>;
      }}
    >
      <NumberField name="overlapDays" label="Days in which both hold" required min={0} max={90} defaultValue="7" />
      <NumberField
        name="expiryDays"
        label="Days the new one holds"
        hint="Empty: as the settings say"
        min={1}
        max={730}
      />
      <CheckField
        name="updateKeyVaults"
        label="Write it into the key vault secrets that are known to hold the old one"
        defaultChecked
      />
      <CheckField name="restartApps" label="Restart apps that need it to take the new one" defaultChecked />
      <CheckField name="removeExpired" label="Remove an expired secret first where there is no room for a new one" />
      <CheckField name="skipVerification" label="Do not look whether everybody took the new one" />
    </Operate>
  );
}
