import { Text } from "@fluentui/react-components";
import { Fragment, useState } from "react";
import { api, type Schemas } from "../api/client.ts";
import { titleOfId } from "./asset-name.ts";
import { consumerTitle } from "./dependency-texts.ts";
import { CheckField, ChoiceField, FormSection, NumberField, SecretField } from "./fields.tsx";
import { fieldText, withoutEmpty } from "./form-dialog.tsx";
import { isolated } from "./isolated.ts";
import { Operate } from "./operate.tsx";
import { QueryResult } from "./query-result.tsx";
import { openRotation } from "./rotate-client-secret.tsx";
import { RotationPlan } from "./rotation-plan.tsx";
import { ValidityField } from "./validity-field.tsx";

type Radius = Schemas["BlastRadius"];

/** Sources of the new value. `application`: the default of the API, for which the request contains no value. */
const VALUE_SOURCES = {
  application: "Create a client secret in Entra (if the secret belongs to an application)",
  given: "Enter a value",
  made: "Generate a random value",
} as const;
const ALPHABETS = ["alphanumeric", "hex", "base64url", "symbols"] as const;

/**
 * The button that rotates a secret and updates its consumers, on the asset's page and on the page of its blast radius. The open
 * form loads the consumers. The form can be submitted only after it has shown the plan.
 */
export function RotateAsset({
  assetId,
  name,
  started,
}: {
  /** ID of a secret that is not in a B2C tenant, where the service can't create secrets. */
  assetId: string;
  /** Name of the credential if the asset is one: its ID contains no name. */
  name: string;
  /** Called when the rotation has started. Without it, the page of the rotation opens. */
  started?(rotationId: string): void;
}) {
  const bodyOf = (form: FormData, dryRun: boolean) => {
    const included = form.getAll("consumer").map(String);
    // Empty until the consumers are loaded.
    const updatable = form.getAll("updatable");
    return {
      params: { path: { secret_id: assetId } },
      body: {
        ...newValueOf(form),
        // An empty field is 0 as a number. It is omitted, so that the default of the settings applies.
        ...withoutEmpty({ expiryDays: Number(fieldText(form, "expiryDays")) || null }),
        // Without the member, the rotation updates all consumers.
        ...(included.length < updatable.length && { includeResources: included }),
        restartApps: form.has("restartApps"),
        skipVerification: form.has("skipVerification"),
        dryRun,
      },
    };
  };
  return (
    <div>
      <Operate
        operation="rotateAsset"
        title="Rotate secret"
        about={titleOfId(assetId, name)}
        action="Rotate secret"
        appearance="primary"
        preview={{
          action: "Preview rotation",
          isRequired: true,
          load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
        }}
        submit={async (form, rotate) => {
          const { rotationId } = await rotate(bodyOf(form, false));
          if (rotationId !== null) (started ?? openRotation)(rotationId);
        }}
      >
        <Text>The preview lists all steps. The rotation starts only when you select Rotate secret.</Text>
        <FormSection title="New value">
          {assetId.startsWith("entra.") ? (
            <Text>
              Creates a client secret in Entra for {isolated(name)} and saves it to the matching key vault secrets.{" "}
              {CLIENT_SECRET_OVERLAP}
            </Text>
          ) : (
            <Value />
          )}
          <ValidityField />
        </FormSection>
        <ConsumerSections assetId={assetId} />
      </Operate>
    </div>
  );
}

/** The sections of the form about the consumers. A rotation updates those that reference the asset, not those that merely have access. */
function ConsumerSections({ assetId }: { assetId: string }) {
  const radius = api.useQuery("get", "/api/assets/dependencies/blast-radius/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  const consumers = (radius.data?.consumers ?? []).filter(({ strength }) => strength === "references");
  return (
    <>
      <FormSection title="Consumers to update">
        <QueryResult of={radius}>{() => <Consumers consumers={consumers} />}</QueryResult>
      </FormSection>
      <FormSection title="After the update">
        <ConsumerOptions apps={consumers.map(({ resource }) => resource).filter(isAppServiceApp)} />
      </FormSection>
    </>
  );
}

const isAppServiceApp = ({ kind }: { kind: string }): boolean => kind === "webApp" || kind === "functionApp";

/** What happens to the old secret, with the API's default overlap period. */
const CLIENT_SECRET_OVERLAP =
  "The old client secret stays valid for 7 days. It is then deleted if all known consumers use the new one.";

/** The fields for the new value of a vault secret. Which of them are shown depends on the selected source. */
function Value() {
  const [source, setSource] = useState<keyof typeof VALUE_SOURCES>("application");
  return (
    <>
      <ChoiceField
        name="value"
        label="Source of the new value"
        hint={
          source === "application" ? CLIENT_SECRET_OVERLAP : "The old value stays in the vault as an earlier version."
        }
        options={VALUE_SOURCES}
        value={source}
        choose={setSource}
      />
      {source === "given" && (
        <SecretField name="newValue" label="New value" hint="The service never shows or logs the value." required />
      )}
      {source === "made" && (
        <>
          <NumberField name="length" label="Length (characters)" required min={8} max={4096} defaultValue="32" />
          <ChoiceField name="alphabet" label="Characters" options={ALPHABETS} />
          <CheckField
            name="issuerAccepts"
            label="I confirm that any value works, because no other system must know the value first"
            required
          />
        </>
      )}
    </>
  );
}

/** Returns the body members of the selected source. A given value is not trimmed: a secret can start or end with spaces. */
function newValueOf(form: FormData) {
  const source = fieldText(form, "value");
  if (source === "given") return { newValue: String(form.get("newValue")) };
  if (source !== "made") return {};
  return {
    generate: { length: Number(fieldText(form, "length")), alphabet: fieldText(form, "alphabet") },
    issuerAccepts: form.has("issuerAccepts"),
  };
}

/** The consumers to update. The service still checks excluded consumers before it removes the old value. */
function Consumers({ consumers }: Pick<Radius, "consumers">) {
  // A resource is several consumers if it uses the asset in several ways. The form lists it once.
  const resources = new Map(consumers.map(({ resource }) => [resource.id, resource]));
  if (resources.size === 0) return <Text>No consumers to update were found.</Text>;
  return (
    <>
      <Text>The rotation gives them the new value. An excluded consumer may keep using the old value.</Text>
      {[...resources.values()].map((resource) => (
        <Fragment key={resource.id}>
          <input type="hidden" name="updatable" value={resource.id} />
          <CheckField
            name="consumer"
            value={resource.id}
            label={`${UPDATES[resource.kind] ?? "Update"} ${consumerTitle(resource)}`}
            defaultChecked
          />
        </Fragment>
      ))}
    </>
  );
}

/** How a rotation updates a consumer, by the kind of resource. */
const UPDATES: Partial<Record<string, string>> = {
  webApp: "Refresh the Key Vault references of",
  functionApp: "Refresh the Key Vault references of",
  apiManagement: "Refresh the named values of",
  devopsVariableGroup: "Update the variables of",
  devopsServiceConnection: "Update the secret of",
  syncRecord: "Run the sync",
};

/**
 * The options that apply to all consumers.
 *
 * @param props.apps - The web and function apps among the consumers, which the rotation can restart.
 */
function ConsumerOptions({ apps }: { apps: { name: string }[] }) {
  const names = [...new Set(apps.map(({ name }) => isolated(name)))].join(", ");
  return (
    <>
      <CheckField
        name="restartApps"
        label={`Restart ${names === "" ? "web apps and function apps" : names} after the refresh`}
        hint="Most apps read their settings only at startup."
        defaultChecked
      />
      <CheckField
        name="skipVerification"
        label="Don't check whether consumers use the new value"
        hint="The rotation then continues even if a consumer still uses the old value."
      />
    </>
  );
}
