import { Button, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useState } from "react";

const useStyles = makeStyles({
  text: {
    whiteSpace: "pre-wrap",
    overflowWrap: "anywhere",
    fontFamily: tokens.fontFamilyMonospace,
    padding: tokens.spacingHorizontalS,
    margin: 0,
    backgroundColor: tokens.colorNeutralBackground3,
    borderRadius: tokens.borderRadiusMedium,
  },
});

/** Text to paste elsewhere, such as the command of a remediation or a new API token, with a "Copy" button. */
export function Copyable({ label, text }: { label: string; text: string }) {
  const styles = useStyles();
  const [isCopied, setCopied] = useState(false);
  return (
    <div>
      <Text weight="semibold">{label}</Text>{" "}
      <Button size="small" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>
        {isCopied ? "Copied" : "Copy"}
      </Button>
      <pre className={styles.text}>{text}</pre>
    </div>
  );
}
