import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { titleOfId } from "./asset-name.ts";
import { CheckField, FormSection, NumberField } from "./fields.tsx";
import { fieldText, withoutEmpty } from "./form-dialog.tsx";
import { Instant } from "./instant.tsx";
import { isolated } from "./isolated.ts";
import { bothInUse, credentialTitle, textsOfKind, unfinished, unusedKey } from "./key-credential.ts";
import { Operate } from "./operate.tsx";
import { counted } from "./plural.ts";
import { openRotation } from "./rotate-client-secret.tsx";
import { RotationPlan } from "./rotation-plan.tsx";
import { statusTextOf } from "./rotation-texts.ts";
import { Unavailable, useWhyNot } from "./unavailable.tsx";
import { ValidityField } from "./validity-field.tsx";

type Credential = Schemas["RotationCredentialDetail"];

/** Whether a pair of keys or users can be rotated, which of them a rotation would change, and which one stays. */
export function KeyRotationState({ credential }: { credential: Credential }) {
  const { kind, keyInUse, rotationId } = credential;
  const newKey = unusedKey(credential);
  if (rotationId !== null) return <InProgress credential={credential} rotationId={rotationId} />;
  return (
    <Text>
      <Badge appearance="tint" color={newKey === undefined ? "informative" : "success"}>
        {newKey === undefined ? "Not possible" : "Ready"}
      </Badge>{" "}
      {newKey === undefined
        ? bothInUse(credential)
        : textsOfKind(
            kind,
            `The vault secrets store ${keyInUse}. A rotation regenerates ${newKey}, which no known vault secret stores, and saves it in place of ${keyInUse}. ${keyInUse} stays valid, unless you also select its regeneration.`,
            `The vault secrets store the login of ${keyInUse}. A rotation gives ${newKey} a new password and saves it with the user in place of ${keyInUse}. After the overlap period, ${keyInUse} gets a random password that is stored nowhere.`,
          )}
    </Text>
  );
}

/** The progress of a rotation, and its next step. */
function InProgress({ credential, rotationId }: { credential: Credential; rotationId: string }) {
  const { data } = api.useQuery("get", "/api/automation/rotation/rotations/{rotation_id}", {
    params: { path: { rotation_id: rotationId } },
  });
  const written = data?.targets.filter(({ state }) => state === "written").length ?? 0;
  return (
    <Text>
      <Badge appearance="tint" color="brand">
        In progress
      </Badge>{" "}
      {data ? (
        <>
          A rotation replaces {data.oldKeyId} by{" "}
          {data.newKeyId ?? textsOfKind(credential.kind, "the other key", "the other user")}. {written.toLocaleString()}{" "}
          of {counted(data.targets.length, "vault secret")} {data.targets.length === 1 ? "stores" : "store"}{" "}
          {textsOfKind(credential.kind, "the new key", "the new login")}. {statusTextOf(data)}
          {data.status === "overlapping" && data.overlapEndsAt && (
            <>
              {" "}
              until <Instant at={data.overlapEndsAt} />
            </>
          )}
          .
        </>
      ) : (
        unfinished(credential)
      )}{" "}
      <Link href={createHref(`/rotation/${rotationId}`)}>Show its steps</Link>
    </Text>
  );
}

/**
 * The button that rotates a key of an Azure resource, on the page of the credential and on that of a vault secret that stores the
 * key. The form can be submitted only after it has shown the plan. If the user can't rotate the key, the button says why.
 */
export function RotateKey({
  credential,
  started = openRotation,
}: {
  credential: Credential;
  /** Called when the rotation has started. Without it, the page of the rotation opens. */
  started?(rotationId: string): void;
}) {
  const { credentialId, keyInUse, places, rotationId } = credential;
  const whyNot = useWhyNot()("rotateCredential");
  const newKey = unusedKey(credential);
  if (whyNot !== undefined) return <Unavailable title="Rotate key" reason={whyNot} />;
  if (rotationId !== null) return <Unavailable title="Rotate key" reason={unfinished(credential) ?? ""} />;
  if (newKey === undefined) return <Unavailable title="Rotate key" reason={bothInUse(credential) ?? ""} />;
  const bodyOf = (form: FormData, dryRun: boolean) => ({
    params: { path: { credential_id: credentialId } },
    body: {
      targets: form.getAll("targets").map(String),
      // An empty field is 0 as a number. It is omitted, so that the default of the settings applies.
      ...withoutEmpty({ expiryDays: Number(fieldText(form, "expiryDays")) || null }),
      overlapDays: Number(fieldText(form, "overlapDays")),
      regenerateOld: form.has("regenerateOld"),
      acceptUnread: form.has("acceptUnread"),
      restartApps: form.has("restartApps"),
      skipVerification: form.has("skipVerification"),
      dryRun,
    },
  });
  return (
    <Operate
      operation="rotateCredential"
      title="Rotate key"
      about={credentialTitle(credential)}
      action="Rotate key"
      appearance="primary"
      preview={{
        action: "Preview rotation",
        isRequired: true,
        load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
      }}
      submit={async (form, rotate) => {
        const { rotationId } = await rotate(bodyOf(form, false));
        if (rotationId !== null) started(rotationId);
      }}
    >
      <Text>
        Regenerates {newKey} of {isolated(credential.resourceName)}, which no known vault secret stores, and saves it in
        place of {keyInUse}. The preview compares the vault secrets with the keys again and lists all steps. The
        rotation starts only when you select Rotate key.
      </Text>
      <Targets places={places} />
      <FormSection title={`What happens to ${keyInUse}`}>
        <NumberField
          name="overlapDays"
          label="Overlap period (days)"
          hint={`Number of days that ${keyInUse} stays valid in any case, so that the rotation can be rolled back. Example: 7`}
          required
          min={0}
          max={90}
          defaultValue="7"
        />
        <CheckField
          name="regenerateOld"
          label={`Regenerate ${keyInUse} after the overlap period`}
          hint={`Its value is then no longer valid. If off, ${keyInUse} stays valid until the next rotation.`}
        />
        <CheckField
          name="acceptUnread"
          label={`Regenerate ${newKey} even if it may be in use`}
          hint={`Only if the preview asks for it: the service could not read all vault secrets, or a consumer may use an earlier version. Anything that uses ${newKey} stops working.`}
        />
      </FormSection>
      <FormSection title="After the update">
        <ValidityField label="Validity of the new versions (days)" />
        <CheckField
          name="restartApps"
          label="Restart web apps and function apps that use the key"
          hint="Most apps read their settings only at startup."
          defaultChecked
        />
        <CheckField
          name="skipVerification"
          label="Don't check whether consumers use the new key"
          hint="The rotation then continues even if a consumer still uses the old key."
        />
      </FormSection>
    </Operate>
  );
}

/**
 * The vault secrets that get the new key, all of them by default: one that keeps the old key prevents the next rotation. A single
 * one can't be deselected.
 */
function Targets({ places }: Pick<Credential, "places">) {
  const [first, ...others] = places;
  return (
    <FormSection title="Key Vault secrets to update">
      {first !== undefined && others.length === 0 ? (
        <>
          <Text>{titleOfId(first.assetId)}</Text>
          <input type="hidden" name="targets" value={first.assetId} />
        </>
      ) : (
        places.map(({ assetId }) => (
          <CheckField key={assetId} name="targets" value={assetId} label={titleOfId(assetId)} defaultChecked />
        ))
      )}
    </FormSection>
  );
}
