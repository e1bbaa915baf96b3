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
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Bar } from "../../parts/bar.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { scoreColor } from "../../parts/score.tsx";

type Framework = Schemas["Framework"];
type FrameworkId = Framework["id"];

const CONTROL_STATUSES = {
  pass: "Passed",
  fail: "Failed",
  notApplicable: "Not applicable",
  manual: "Must be reviewed manually",
} as const satisfies Record<Schemas["FrameworkDetails"]["controls"][number]["status"], string>;

const useStyles = makeStyles({
  // The header wraps on a narrow screen.
  header: { "& button": { paddingBlock: tokens.spacingVerticalXS } },
});

/** The frameworks on the Compliance page with their scores. An expanded framework loads and shows its controls. */
export function Frameworks() {
  const frameworks = api.useQuery("get", "/compliance/frameworks");
  const styles = useStyles();
  return (
    <QueryResult of={frameworks}>
      {({ items }) => {
        const { newest, older } = byEdition(items);
        return (
          <>
            <Text>
              Only controls about secrets, keys, certificates and key vaults are checked. The score is the share of
              passed check results, weighted by severity. A control fails if one of its check results fails.
            </Text>
            <FrameworkList of={newest} />
            {older.length > 0 && (
              <Accordion collapsible>
                <AccordionItem value="older">
                  <AccordionHeader className={styles.header}>{counted(older.length, "older edition")}</AccordionHeader>
                  <AccordionPanel>
                    <FrameworkList of={older} />
                  </AccordionPanel>
                </AccordionItem>
              </Accordion>
            )}
          </>
        );
      }}
    </QueryResult>
  );
}

/** Divides the frameworks: the newest edition of each, by name, and all older editions, the newer ones first. */
function byEdition(frameworks: Framework[]): { newest: Framework[]; older: Framework[] } {
  const newerFirst = [...frameworks].sort((a, b) => b.version.localeCompare(a.version, undefined, { numeric: true }));
  const isNewest = ({ id, name }: Framework) => newerFirst.find((other) => other.name === name)?.id === id;
  return { newest: frameworks.filter(isNewest), older: newerFirst.filter((framework) => !isNewest(framework)) };
}

/** A list of frameworks with their scores as bars. */
function FrameworkList({ of: frameworks }: { of: Framework[] }) {
  const styles = useStyles();
  const [expanded, setExpanded] = useState<FrameworkId[]>([]);
  return (
    <Accordion
      multiple
      collapsible
      openItems={expanded}
      onToggle={(_, data) => setExpanded(data.openItems as FrameworkId[])}
    >
      {frameworks.map(({ id, name, version, score, failed, controlsByStatus }) => (
        <AccordionItem key={id} value={id}>
          <AccordionHeader className={styles.header}>
            {name} {version}: score {score} of 100, {controlsByStatus.fail} of{" "}
            {counted(
              Object.values(controlsByStatus).reduce((sum, count) => sum + count, 0),
              "control",
            )}{" "}
            failed, {counted(failed, "violation")}
          </AccordionHeader>
          <Bar share={score / 100} color={scoreColor(score)} />
          <AccordionPanel>{expanded.includes(id) && <Controls framework={id} />}</AccordionPanel>
        </AccordionItem>
      ))}
    </Accordion>
  );
}

/** The controls of a framework. A check result is one check of one asset or vault; an exempt result is not a failed one. */
function Controls({ framework }: { framework: FrameworkId }) {
  const details = api.useQuery("get", "/compliance/frameworks/{framework_id}", {
    params: { path: { framework_id: framework } },
  });
  return (
    <QueryResult of={details}>
      {({ source, controls }) => (
        <>
          <Text block>{source}</Text>
          <Link href={createHref("/compliance", { framework })}>Show violations of this framework below</Link>
          <ul>
            {controls.map(({ id, title, status, passed, failed, exempted, notAssessed }) => (
              <li key={id}>
                <strong>{id}</strong> {title}: {CONTROL_STATUSES[status]}
                {passed + failed > 0 &&
                  `, ${counted(passed, "check result")} passed, ${failed.toLocaleString()} failed`}
                {exempted > 0 && `, ${exempted.toLocaleString()} exempt`}
                {notAssessed !== null && `. Not assessed: ${notAssessed}`}
              </li>
            ))}
          </ul>
        </>
      )}
    </QueryResult>
  );
}
