import {
  Accordion,
  AccordionHeader,
  AccordionItem,
  AccordionPanel,
  Link,
  makeStyles,
  Text,
  tokens,
} from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { DataTable } from "../../parts/data-table.tsx";
import { ChoiceField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { HANDOVER, MATCH_EVIDENCE } from "../../parts/rotation-texts.ts";

type Match = Schemas["RotationMatch"];

const useStyles = makeStyles({ reasons: { margin: 0, paddingInlineStart: tokens.spacingHorizontalL } });

/** How sure the match is, and its evidence as a list. */
function Confidence({ of: { confidence, evidence } }: { of: Match }) {
  const styles = useStyles();
  return (
    <>
      {CONFIDENCE[confidence]}:
      <ul className={styles.reasons}>
        {evidence.map((reason) => (
          <li key={reason}>{MATCH_EVIDENCE[reason]}</li>
        ))}
      </ul>
    </>
  );
}

/** Proof by the value of the vault secret, which "Test match" reads. */
const VERIFIED = { none: "Not tested", hint: "First characters match", signIn: "Sign-in succeeded" } as const;
/** How sure the service is that the vault secret stores the application's secret. Only `certain` ones are written. */
const CONFIDENCE = {
  certain: "Proven",
  likely: "Likely",
  possible: "Possible",
} as const satisfies Record<Match["confidence"], string>;

/**
 * The table of vault secrets that may store the application's secret, on the application's page. Each row is a match: a vault
 * secret with the evidence for it.
 */
export function Matches({ application }: { application: Schemas["Application"] }) {
  const { appId } = application;
  const params = { path: { app_id: appId }, query: { limit: 100 } };
  const list = api.useInfiniteQuery("get", "/api/automation/rotation/apps/{app_id}/matches", { params }, BY_CURSOR);
  const columns: Column<Match>[] = [
    {
      title: "Secret",
      cell: ({ assetId, enabled }) => (
        <>
          <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{titleOfId(assetId)}</Link>
          {enabled ? "" : " (disabled)"}
        </>
      ),
    },
    { title: "Evidence", cell: (match) => <Confidence of={match} /> },
    { title: "Test", cell: ({ verified }) => VERIFIED[verified] },
    { title: "", cell: (match) => <Actions application={application} match={match} /> },
  ];
  const weak = (list.data?.pages ?? []).flatMap(({ items }) => items).filter(isWeak);
  const withoutWeak = list.data && {
    ...list.data,
    pages: list.data.pages.map((page) => ({ ...page, items: page.items.filter((match) => !isWeak(match)) })),
  };
  return (
    <>
      <PagedTable
        of={{ ...list, data: withoutWeak }}
        columns={columns}
        keyOf={({ assetId }) => assetId}
        label="Matching key vault secrets"
        empty={weak.length > 0 ? ONLY_WEAK : NO_MATCHES}
      />
      {weak.length > 0 && (
        <Accordion collapsible>
          <AccordionItem value="weak">
            <AccordionHeader>
              {counted(weak.length, "weak match", "weak matches")}, such as by name or date only
            </AccordionHeader>
            <AccordionPanel>
              <DataTable items={weak} columns={columns} keyOf={({ assetId }) => assetId} label="Weak matches" />
            </AccordionPanel>
          </AccordionItem>
        </Accordion>
      )}
    </>
  );
}

/** A weak match has no more in common with the credential than a name or a date, so it is folded away. */
const isWeak = ({ confidence }: Match): boolean => confidence === "possible";

const ONLY_WEAK = "No likely match. The weak matches below have only a name or a date in common with the secret.";
const NO_MATCHES = `No matching key vault secrets. You can still rotate the secret. ${HANDOVER}`;

/** The buttons of a match: test it by its value, and confirm it or remove the confirmation. */
function Actions({
  application: { appId, credentials },
  match,
}: {
  application: Schemas["Application"];
  match: Match;
}) {
  const { assetId, keyId, evidence } = match;
  const params = { path: { app_id: appId } };
  const isConfirmed = evidence.includes("confirmed");
  const secrets = credentials.filter(({ kind }) => kind === "secret");
  return (
    <ButtonRow>
      <Operate
        operation="verifyRotationMatch"
        title="Test match"
        about={titleOfId(assetId)}
        action="Read secret and sign in"
        submit={async (_, verify) => (await verify({ params, body: { assetId } })).message}
      >
        <Text>
          Reads the secret's value once and signs in as the application with it, to find out whether it is the
          application's secret. The value is not shown or stored.
        </Text>
      </Operate>
      <Operate
        operation="confirmRotationMatch"
        title={isConfirmed ? "Remove confirmation" : "Confirm match"}
        about={titleOfId(assetId)}
        action={isConfirmed ? "Remove confirmation" : "Confirm match"}
        submit={(form, confirm) =>
          confirm({
            params,
            body: { assetId, confirmed: !isConfirmed, ...withoutEmpty({ keyId: fieldText(form, "keyId") }) },
          })
        }
      >
        {isConfirmed ? (
          <Text>
            Rotations no longer update this key vault secret, unless the policy lists it or an earlier rotation updated
            it.
          </Text>
        ) : (
          <>
            <Text>
              Confirms without a test that this key vault secret stores the selected credential. Rotations of the
              credential then save the new secret here. If it stores another value, the next rotation replaces that
              value, and its consumers stop working. If you are not sure, select Test match instead.
            </Text>
            <ChoiceField
              name="keyId"
              label="Credential stored in this secret"
              options={Object.fromEntries(secrets.map((secret) => [secret.keyId, secret.displayName ?? secret.keyId]))}
              // The match has no key ID if the evidence fits several credentials. Then the first one is preselected.
              defaultValue={keyId ?? secrets[0]?.keyId ?? ""}
            />
          </>
        )}
      </Operate>
    </ButtonRow>
  );
}
