"""The methods of the XML-RPC interface: parameters to requests, decisions to answers, faults.

Only ``daemon`` and ``command`` import it. It imports ``decisions`` and what lies below that;
``server.http`` carries its bytes.
"""
