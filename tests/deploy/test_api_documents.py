"""Tests docs/openapi.json with the standard validator of OpenAPI."""

import json
import unittest

from tools import SOURCE, TOOLS, run

DOCS = SOURCE / "docs"


class ApiDocuments(unittest.TestCase):
    def test_openapi_is_valid_and_each_operation_has_a_name_and_a_tag(self):
        run(TOOLS / "openapi-spec-validator", DOCS / "openapi.json")
        document = json.loads((DOCS / "openapi.json").read_text())
        operations = [operation for verbs in document["paths"].values() for operation in verbs.values()]
        names = [operation["operationId"] for operation in operations]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual({tag for operation in operations for tag in operation["tags"]}, {tag["name"] for tag in document["tags"]})
        self.assertEqual({len(operation["tags"]) for operation in operations}, {1})


if __name__ == "__main__":
    unittest.main()
